"""How a plugin is found, loaded and left; none of it needs the plugin's hardware."""
