"""The specification of the gateway as a whole: an in-process gateway between raw clients and scripted engines."""
