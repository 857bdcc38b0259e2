"""A local page to look around in an embedding; the only importer of starlette and uvicorn."""
