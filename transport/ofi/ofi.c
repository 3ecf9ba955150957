/*
 * ofi.c - the initiator: regions, opening and closing.
 */
#include "transport/ofi/ofi.h"

#include <errno.h>
#include <string.h>

#include "base/mem/alloc.h"
#include "base/log.h"

#include "transport/attach/address.h"
#include "transport/fork.h"
#include "transport/mapped.h"
#include "transport/ofi/post.h"

struct ofi {
	struct ofi_post post;
	struct ofi_region *regions;
	uint32_t requests;
};

static struct ofi *ofi_of(struct transport *tr)
{
	return (struct ofi *)tr;
}

/* -------- regions -------- */

static int ofi_attach(struct transport *tr, const struct region_grant *grant,
		      struct region **region_out)
{
	struct ofi *ofi = ofi_of(tr);
	struct ofi_region *mine = mem_zalloc(sizeof(*mine));
	union ofi_any message = { .attach = { .request = ++ofi->requests,
					      .grant_bytes = grant->bytes } };
	struct ofi_attached answer = { .status = 0 };
	int ret;

	if (!mine)
		return error_set(-ENOMEM, "cannot allocate memory for a region");
	memcpy(message.attach.grant, grant->data, grant->bytes);
	ret = ofi_post_order(tr); /* answers to lists come before that to the ATTACH */
	if (ret) {
		mem_free(mine);
		return ret;
	}
	ret = ofi_link_check(&ofi->post.link);
	if (ret == 0)
		ret = ofi_link_ask(&ofi->post.link, &message, OFI_ATTACH, &answer,
				   transport_give_up_ns(tr));
	/* Any failure ends the link: a late answer is not taken for that to the next request. */
	if (ret)
		ret = ofi_post_fail(&ofi->post, ret, error_last());
	else if (answer.status)
		ret = error_set(answer.status, "memory node: %s", answer.text);
	if (ret) {
		mem_free(mine);
		return ret;
	}
	mine->region = (struct region){ .id = answer.region,
					.rights = answer.rights,
					.size = answer.size,
					.incarnation = ofi->post.link.welcome.incarnation };
	mine->address = answer.address;
	mine->key = answer.key;
	mine->request = answer.request;
	mine->opening = (uint16_t)answer.opening;
	mine->next = ofi->regions;
	ofi->regions = mine;
	*region_out = &mine->region;
	return 0;
}

/*
 * Waits for outstanding work, sends a DETACH and frees the region. If the link has ended, the
 * target has closed the region itself.
 */
static void ofi_detach(struct transport *tr, struct region *region)
{
	struct ofi *ofi = ofi_of(tr);
	struct ofi_region **at = &ofi->regions;
	struct ofi_region *mine = (struct ofi_region *)region;
	union ofi_any message = { .detach = { .region = region->id, .request = mine->request } };

	while (*at != mine)
		at = &(*at)->next;
	*at = mine->next;
	if (!fork_happened(tr->forks) && ofi_post_order(tr) == 0) {
		int ret = ofi_link_ask(&ofi->post.link, &message, OFI_DETACH, NULL,
				       transport_give_up_ns(tr));

		if (ret)
			(void)ofi_post_fail(&ofi->post, ret, error_last());
	}
	mem_free(mine);
}

/* -------- closing and opening -------- */

static void ofi_close(struct transport *tr)
{
	struct ofi *ofi = ofi_of(tr);
	bool forked = fork_happened(tr->forks);

	if (!forked && !tr->broken && ofi_post_order(tr))
		log_warn("close: %s", error_last());
	ofi_post_fini(&ofi->post, forked);
	while (ofi->regions) {
		struct ofi_region *mine = ofi->regions;

		ofi->regions = mine->next;
		mem_free(mine);
	}
	mem_free(ofi);
}

/* No persist: without the capability it is not called; a node persists its regions itself. */
static const struct transport_ops ofi_ops = {
	.name = "ofi",
	.attach = ofi_attach,
	.detach = ofi_detach,
	.submit = ofi_post_submit,
	.poll = ofi_post_poll,
	.order = ofi_post_order,
	.close = ofi_close,
};

int ofi_open(const char *rest, const struct transport_opts *opts, struct transport **tr_out)
{
	struct ofi_link_opts link = { .clock = opts->clock,
				      .timeout_ns = opts->open_ns,
				      .client_id = opts->client_id,
				      .replaces = opts->replaces };
	struct node_address address;
	struct transport *tr = NULL;
	struct ofi_post *post;
	int ret = node_address_parse(rest, &address);

	if (ret == 0 && !*address.host)
		ret = error_set(-EINVAL, "transport uri \"ofi:%s\": the host is missing", rest);
	if (ret == 0)
		ret = transport_new(sizeof(struct ofi), &ofi_ops,
				    TRANSPORT_ASYNC | TRANSPORT_AGENT_ATOMIC | TRANSPORT_GUARDS,
				    opts, &tr);
	if (ret)
		return ret;
	post = &ofi_of(tr)->post;
	link.host = address.host;
	link.port = address.port;
	ret = ofi_link_open(&link, &post->link);
	if (ret == 0)
		ret = ofi_post_init(post);
	if (ret) {
		ofi_post_fini(post, false);
		mem_free(tr);
		return ret;
	}
	tr->link = post->link.number;
	tr->chain = OFI_LIST_MAX;
	*tr_out = mapped_over(tr, address.path, post->link.welcome.boot_id, opts);
	return 0;
}
