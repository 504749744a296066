"""The laws of the contracts of torchyard_kernels, as functions of an implementation and a call.

Importing this package imports neither torch nor the component: the kit lists its laws without them.
"""
