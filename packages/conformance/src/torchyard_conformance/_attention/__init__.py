"""The laws of attention/1 and attention_backward/1, as functions of an implementation and a call.

Importing this package imports neither torch nor the component: the kit lists its laws without them.
"""
