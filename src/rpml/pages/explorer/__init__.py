"""A local page to explore an embedding; the only importer of starlette and uvicorn."""
