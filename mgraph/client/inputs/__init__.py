"""What a graph is fed from: data that the workers read, and streams that this process reads."""
