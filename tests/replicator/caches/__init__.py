"""Caches on the devices of nodes and on SSD servers: the library and the verbs."""
