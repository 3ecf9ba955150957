/* Kernel for eight draws at a time; see kernel_vector.h. */
#include "ds/sumtree/kernel_vector.h"

#if defined(__AVX512F__)
const struct sumtree_kernel sumtree_kernel_avx512 = { pick_inner, pick_leaves, pick_sums,
						      split_trees, copy_families };
#endif
