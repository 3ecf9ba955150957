/*
 * node_options.h - options of a memory node: one list for `relive up` and `relive node add`.
 */
#ifndef RLV_CLI_HOST_NODE_OPTIONS_H
#define RLV_CLI_HOST_NODE_OPTIONS_H

#include "cli/host/host_store.h"
#include "program/args.h"

/* Elements of an array of struct arg_option that fill `opts`, a struct host_node_opts. */
#define HOST_NODE_OPTIONS(opts) \
	{ "size", "BYTES", "size of a node's pool (default 1G; of an existing pool, its size)", \
	  &(opts).bytes, ARG_BYTES }, \
		{ "file", "PATH", \
		  "keep the pool in this directory or on this DAX device: its\nitems outlive the node", \
		  &(opts).file, ARG_TEXT }, \
		{ "trust-clients", NULL, \
		  "let clients of this host map the device: each gets all of it", \
		  &(opts).trust_clients, ARG_FLAG }, \
		{ "adopt", NULL, "add tables of the pool that the catalog does not list", \
		  &(opts).adopt, ARG_FLAG }, \
		{ "discard", NULL, "erase regions of the pool that the catalog does not list", \
		  &(opts).discard, ARG_FLAG }, \
		{ "pages", "auto|huge|small", \
		  "pages of a pool in memory (default auto; huge: reserved ones)", &(opts).pages, \
		  ARG_WORD }, \
		{ "transport", "auto|shm|verbs|ofi", \
		  "how clients reach the memory (default auto; relive status says why)", \
		  &(opts).transport, ARG_TEXT }, \
		{ "rdma-listen", "HOST:PORT", \
		  "verbs, ofi: address at which the node accepts clients (default any)", \
		  &(opts).rdma_listen, ARG_TEXT }, \
		{ "interface", "NAME", "verbs, ofi: accept them at the address of this interface", \
		  &(opts).interface, ARG_TEXT }, \
		{ "ports", "LOW-HIGH", "ofi: use ports of this range only", &(opts).ports, \
		  ARG_TEXT }, \
		{ "provider", "NAME", "ofi: provider of libfabric for long READs (default none)", \
		  &(opts).provider, ARG_TEXT }, \
		{ "group", "GROUP", \
		  "let users of this group connect, with a token (default of\nnode add: the group of the " \
		  "store)", \
		  &(opts).group, ARG_TEXT }, \
		{ "log-level", "error|warn|info|debug", \
		  "least severe level to log (default info)", &(opts).log_level, ARG_WORD }, \
	{ \
		"log-format", "text|json", "format of logs (default text)", &(opts).log_format, \
			ARG_WORD \
	}

#endif
