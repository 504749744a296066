"""What every test of the workspace runs under."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# A busy machine makes no test wrong: speed is judged by benchmarks alone.
settings.register_profile("workspace", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("workspace")
