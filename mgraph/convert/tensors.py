def to_cugraph(graph):
    "xxxxxxxxxxxxxxxxxxxxxxxxxxxx"


def to_pyg(graph):
    "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
