"""The linear map before the projection, and how strong it is."""
