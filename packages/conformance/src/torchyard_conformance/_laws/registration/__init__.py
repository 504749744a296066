"""How a plugin is found, loaded and unloaded; no law here needs the plugin's hardware."""
