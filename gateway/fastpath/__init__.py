"""The server code that exists for speed alone: plain POSTs are read past aiohttp's request machinery."""
