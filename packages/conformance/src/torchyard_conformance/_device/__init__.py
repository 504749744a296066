"""What torch's parts are tried on a device: each check is a program of its own process."""
