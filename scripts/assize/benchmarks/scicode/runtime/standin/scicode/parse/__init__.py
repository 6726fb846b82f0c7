"""From a response to a function, and from ``test_data.h5`` to the targets of a step."""
