/*
 * port.c - opens and closes the objects of libfabric, in their order.
 */
#include "transport/ofi/port.h"

#include <errno.h>
#include <string.h>

#include "base/bits.h"

enum { COMPLETIONS = 1024 }; /* of a queue; more requests than that are never outstanding */

#define MR_MODES (FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT)

int ofi_port_error(const struct ofi_port *port, const char *call, ssize_t result)
{
	int code = result > -256 ? (int)result : -EIO; /* its own codes are above all errno */

	return error_set(error_is_code(code) && code ? code : -EIO, "libfabric: %s: %s", call,
			 port->calls->strerror((int)-result));
}

/* -------- choosing -------- */

static int choose_info(struct ofi_port *port, const struct ofi_port_opts *opts)
{
	struct fi_info *hints = port->calls->dupinfo(NULL); /* an empty one */
	bool has_host = opts->host && (strncmp(opts->provider, "tcp", 3) == 0 ||
				       strncmp(opts->provider, "verbs", 5) == 0);
	int ret;

	if (!hints || !(hints->fabric_attr->prov_name = strdup(opts->provider))) {
		port->calls->freeinfo(hints);
		return error_set(-ENOMEM, "cannot allocate memory for libfabric");
	}
	hints->caps = FI_RMA;
	hints->mode = FI_CONTEXT | FI_CONTEXT2;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->mr_mode = MR_MODES;
	hints->domain_attr->threading = FI_THREAD_DOMAIN;
	hints->domain_attr->control_progress = FI_PROGRESS_MANUAL;
	hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
	ret = port->calls->getinfo(OFI_API, has_host ? opts->host : NULL, NULL,
				   has_host && opts->is_ours ? FI_SOURCE : 0, hints, &port->info);
	port->calls->freeinfo(hints);
	if (ret == 0)
		return 0;
	port->info = NULL;
	return error_set(-ENOTSUP,
			 "libfabric has no provider \"%s\" with one-sided operations at %s",
			 opts->provider, opts->host ? opts->host : "this host");
}

/* -------- opening -------- */

static int open_cq(struct ofi_port *port, bool sleeps)
{
	struct fi_cq_attr attr = { .size = COMPLETIONS,
				   .format = FI_CQ_FORMAT_CONTEXT,
				   .wait_obj = sleeps ? FI_WAIT_FD : FI_WAIT_NONE };
	int ret = fi_cq_open(port->domain, &attr, &port->cq, NULL);

	if (ret && sleeps) { /* not every provider has descriptors */
		attr.wait_obj = FI_WAIT_NONE;
		ret = fi_cq_open(port->domain, &attr, &port->cq, NULL);
	}
	if (ret)
		return ofi_port_error(port, "fi_cq_open", ret);
	if (attr.wait_obj == FI_WAIT_FD && fi_control(&port->cq->fid, FI_GETWAIT, &port->fd))
		port->fd = -1;
	return 0;
}

int ofi_port_open(const struct ofi_port_opts *opts, struct ofi_port *port)
{
	struct fi_av_attr av = { .type = FI_AV_TABLE };
	int ret = ofi_calls_load(&port->calls);

	port->fd = -1;
	if (ret == 0)
		ret = choose_info(port, opts);
	if (ret)
		return ret;
	ret = port->calls->fabric(port->info->fabric_attr, &port->fabric, NULL);
	if (ret)
		return ofi_port_error(port, "fi_fabric", ret);
	ret = fi_domain(port->fabric, port->info, &port->domain, NULL);
	if (ret)
		return ofi_port_error(port, "fi_domain", ret);
	ret = open_cq(port, opts->sleeps);
	if (ret)
		return ret;
	ret = fi_av_open(port->domain, &av, &port->av, NULL);
	if (ret)
		return ofi_port_error(port, "fi_av_open", ret);
	ret = fi_endpoint(port->domain, port->info, &port->ep, NULL);
	if (ret)
		return ofi_port_error(port, "fi_endpoint", ret);
	ret = fi_ep_bind(port->ep, &port->av->fid, 0);
	if (ret == 0)
		ret = fi_ep_bind(port->ep, &port->cq->fid, FI_TRANSMIT | FI_RECV);
	if (ret == 0)
		ret = fi_enable(port->ep);
	if (ret)
		return ofi_port_error(port, "fi_enable", ret);
	if (port->fd >= 0) /* from now on the descriptor knows of all others */
		(void)ofi_port_drive(port);
	return 0;
}

bool ofi_port_drive(const struct ofi_port *port)
{
	struct fid *fids[] = { &port->cq->fid };
	struct fi_cq_entry entry;
	struct fi_cq_err_entry bad = { 0 };

	/* A target starts no requests, so errors are of what its peers left half done. */
	if (fi_cq_read(port->cq, &entry, 1) == -FI_EAVAIL)
		(void)fi_cq_readerr(port->cq, &bad, 0);
	return port->fd < 0 || fi_trywait(port->fabric, fids, 1) == 0;
}

/* -------- closing -------- */

/* Closes an object; returns `before`, the first error so far, or its own. */
static int port_drop(const struct ofi_port *port, struct fid *fid, const char *what, int before)
{
	int ret = fi_close(fid);

	return ret && !before ? ofi_port_error(port, what, ret) : before;
}

int ofi_port_end(struct ofi_port *port)
{
	int ret = port->ep ? port_drop(port, &port->ep->fid, "fi_close of an endpoint", 0) : 0;

	if (ret == 0)
		port->ep = NULL;
	return ret;
}

int ofi_port_close(struct ofi_port *port)
{
	int ret = ofi_port_end(port);

	if (port->av)
		ret = port_drop(port, &port->av->fid, "fi_close of an address vector", ret);
	if (port->cq)
		ret = port_drop(port, &port->cq->fid, "fi_close of a completion queue", ret);
	if (port->domain)
		ret = port_drop(port, &port->domain->fid, "fi_close of a domain", ret);
	if (port->fabric)
		ret = port_drop(port, &port->fabric->fid, "fi_close of a fabric", ret);
	if (port->info)
		port->calls->freeinfo(port->info);
	*port = (struct ofi_port){ .fd = -1 };
	return ret;
}

/* -------- peers and memory -------- */

int ofi_port_name(const struct ofi_port *port, uint8_t name_out[OFI_ENDPOINT_BYTES],
		  uint32_t *bytes_out)
{
	size_t bytes = OFI_ENDPOINT_BYTES;
	int ret = fi_getname(&port->ep->fid, name_out, &bytes);

	if (ret || bytes > OFI_ENDPOINT_BYTES)
		return ofi_port_error(port, "fi_getname", ret ? ret : -FI_ETOOSMALL);
	*bytes_out = (uint32_t)bytes;
	return 0;
}

int ofi_port_add(const struct ofi_port *port, const uint8_t *name, uint32_t bytes,
		 fi_addr_t *peer_out)
{
	uint8_t padded[OFI_ENDPOINT_BYTES] = { 0 }; /* a provider may read more than it was given */
	int ret;

	memcpy(padded, name, min_u64(bytes, sizeof(padded)));
	ret = fi_av_insert(port->av, padded, 1, peer_out, 0, NULL);
	return ret == 1 ? 0 : ofi_port_error(port, "fi_av_insert", ret < 0 ? ret : -FI_EINVAL);
}

int ofi_port_register(const struct ofi_port *port, const struct iovec *memory, uint64_t access,
		      uint64_t key, struct fid_mr **mr_out)
{
	struct fid_mr *mr = NULL;
	int ret = fi_mr_reg(port->domain, memory->iov_base, memory->iov_len, access, 0, key, 0, &mr,
			    NULL);

	if (ret == 0 && (port->info->domain_attr->mr_mode & FI_MR_ENDPOINT)) {
		ret = fi_mr_bind(mr, &port->ep->fid, 0);
		if (ret == 0)
			ret = fi_mr_enable(mr);
	}
	if (ret == 0) {
		*mr_out = mr;
		return 0;
	}
	ret = ofi_port_error(port, "fi_mr_reg", ret);
	if (mr)
		(void)fi_close(&mr->fid);
	return ret;
}
