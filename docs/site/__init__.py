"""The site: pages as readers on the web have them."""
