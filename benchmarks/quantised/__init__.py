"""Products with quantised weights, beside torch and OpenVINO."""
