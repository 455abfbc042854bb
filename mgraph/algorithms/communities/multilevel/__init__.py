"""Multilevel methods: vertices move between communities, and communities become the vertices of a smaller graph.

`louvain` and `leiden` are programs over this engine. `level` moves vertices and divides communities into parts,
`aggregation` builds the graph of communities, `hierarchy` follows the graph's own vertices through the levels, and
`objective` has the quality functions.

Every rank has the community, the strength and the name of each vertex of a level, and the rows of its own vertices.
Ranks own equal ranges of the vertices of smaller graphs. Weights are whole numbers (`weight_sums`), and equal gains are
decided by vertices' names, so that communities do not depend on the number of ranks, the structure, the order of the
vertices or timing.

The turns of a sweep are one program that all ranks run together (`sweep.cuh`, `mgraph.exchange.world`): a turn is one
meeting of the ranks and five of the own blocks, one more meeting in a refinement, and more of both where moves do not
fit into an inbox, or rows are wide. A move is a message of 8 bytes to each other rank, of 16 in a refinement. The rest
are steps of the host:

================= ========================================================= ===========================================
step              launches                                                  exchange among p ranks
================= ========================================================= ===========================================
a sweep           2; two read-backs; a sort of a byte per active row; where an allreduce of a number; an alltoallv of a
                  there are wide rows, a sort of a byte per row, and three  byte per vertex
                  more launches
a refinement      that of a sweep, and 2, 4 where there may be hubs         an allgather of 8 bytes per vertex
a smaller graph   on a GPU 7, and for each piece 4; a sort of each piece,   alltoallvs of 16 bytes per pair of
                  and two sorts of all pairs; on a CPU 6, on several ranks  communities that a rank has; on a CPU 12,
                  12                                                        and 8 per community
================= ========================================================= ===========================================

On a GPU `compact_rows` copies rows with gaps once for the first graph.

References
----------
.. [1] H. Lu, M. Halappanavar, A. Kalyanaraman, "Parallel heuristics for scalable community detection", Parallel
   Computing 47, 2015. Source of parallel moves on the state before them, and of choosing in several turns.
.. [2] S. Sahu, "GVE-Louvain: fast Louvain algorithm for community detection in shared memory setting", 2023. Source of
   the tolerance that falls from level to level, of pruning, and of a thread's sums per community.
"""

from mgraph.algorithms.communities.multilevel.aggregation import number_communities
from mgraph.algorithms.communities.multilevel.hierarchy import Hierarchy, finest_level, vertex_level, warm
from mgraph.algorithms.communities.multilevel.level import FILE, Level

__all__ = ["FILE", "Hierarchy", "Level", "finest_level", "number_communities", "vertex_level", "warm"]
