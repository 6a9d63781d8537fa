"""The server code for speed alone, behind `server.fast_path`: plain requests are read without aiohttp's server."""
