"""The same bytes through Steplane and through HAProxy, to upstreams that write down what they are asked."""
