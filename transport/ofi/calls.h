/*
 * calls.h - libfabric as a table, so that librelive loads where libfabric is not installed.
 *
 * The table holds what libfabric exports. All else (fi_read, fi_cq_read ..) its headers inline: it
 * goes through functions of the objects themselves. A member's name is its call's without the
 * prefix; arguments and results are those of its manual page.
 */
#ifndef RLV_TRANSPORT_OFI_CALLS_H
#define RLV_TRANSPORT_OFI_CALLS_H

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include "base/error.h"

#define OFI_CALLS_VERSION 1 /* of the table; a module of another version is refused */
#define OFI_API FI_VERSION(1, 14)

struct ofi_calls {
	uint32_t version;
	uint32_t reserved;

	int (*getinfo)(uint32_t version, const char *node, const char *service, uint64_t flags,
		       const struct fi_info *hints, struct fi_info **info);
	void (*freeinfo)(struct fi_info *info);
	struct fi_info *(*dupinfo)(const struct fi_info *info);
	int (*fabric)(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context);
	const char *(*strerror)(int errnum);
};

/* The function that the module exports: returns the module's table. */
#define OFI_CALLS_SYMBOL "rlv_ofi_calls"

/*
 * The module's table, opened as module_load does (transport/module.h): RLV_OFI_MODULE, or
 * librelive-ofi.so beside this library. Its errors. A forked child may open ports of its own: between
 * calls libfabric holds no lock. Thread: any.
 */
RLV_MUST_CHECK int ofi_calls_load(const struct ofi_calls **calls_out);

#endif
