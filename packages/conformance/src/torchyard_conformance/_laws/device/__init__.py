"""Laws of a device that torch's own parts are used on: for plugins that bring one to torch."""
