/*
 * node_options.h - options of a memory node: one list for `relive up` and `relive node add`.
 */
#ifndef RLV_CLI_HOST_NODE_OPTIONS_H
#define RLV_CLI_HOST_NODE_OPTIONS_H

#include "cli/host/host_store.h"
#include "program/args.h"

#define HOST_NODE_OPTION(name, value, help, out, kind) \
	{ \
		name, value, help, &(out), kind \
	}

/* Elements of an array of struct arg_option that fill `opts`, a struct host_node_opts. */
#define HOST_NODE_OPTIONS(opts) \
	HOST_NODE_OPTION("size", "BYTES", \
			 "size of a node's pool (default 1G; of an existing pool, its size)", \
			 (opts).bytes, ARG_BYTES), \
		HOST_NODE_OPTION( \
			"file", "PATH", \
			"keep the pool in this directory or on this DAX device: its\nitems " \
			"outlive the node", \
			(opts).file, ARG_TEXT), \
		HOST_NODE_OPTION("trust-clients", NULL, \
				 "let clients of this host map the device: each gets all of it", \
				 (opts).trust_clients, ARG_FLAG), \
		HOST_NODE_OPTION("adopt", NULL, \
				 "add tables of the pool that the catalog does not list", \
				 (opts).adopt, ARG_FLAG), \
		HOST_NODE_OPTION("discard", NULL, \
				 "erase what the pool holds and the catalog does not list", \
				 (opts).discard, ARG_FLAG), \
		HOST_NODE_OPTION("pages", "auto|huge|small", \
				 "pages of a pool in memory (default auto; huge: reserved ones)", \
				 (opts).pages, ARG_WORD), \
		HOST_NODE_OPTION("transport", "auto|shm|verbs", \
				 "how clients reach the memory (default auto)", (opts).transport, \
				 ARG_TEXT), \
		HOST_NODE_OPTION("rdma-listen", "HOST:PORT", \
				 "verbs: address of the RDMA device (default any)", \
				 (opts).rdma_listen, ARG_TEXT), \
		HOST_NODE_OPTION( \
			"group", "GROUP", \
			"let users of this group connect, with a token (default of\nnode " \
			"add: the group of the store)", \
			(opts).group, ARG_TEXT), \
		HOST_NODE_OPTION("log-level", "error|warn|info|debug", \
				 "least severe level to log (default info)", (opts).log_level, \
				 ARG_WORD), \
		HOST_NODE_OPTION("log-format", "text|json", "format of logs (default text)", \
				 (opts).log_format, ARG_WORD)

#endif
