"""torch.compile's default backend, Inductor, on the simulated device.

Inductor generates C++ for the host, as for the CPU. Each kernel is then launched as work of the
device's current stream, on the device's memory, by the operator ``launch_compiled``: it waits in
its stream as every other operator does, and a graph capture records it. Nothing here is imported
before Inductor asks for its parts, at the first compilation.
"""
