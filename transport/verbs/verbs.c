/*
 * verbs.c - the initiator: work requests and regions.
 */
#include "transport/verbs/verbs.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem/alloc.h"
#include "base/log.h"

#include "transport/fork.h"
#include "transport/mapped.h"
#include "transport/attach/address.h"
#include "transport/verbs/post.h"

struct verbs {
	struct post post;
	struct verbs_region *regions;
	uint32_t requests;
};

static struct verbs *verbs_of(struct transport *tr)
{
	return (struct verbs *)tr;
}

/* -------- regions -------- */

static int verbs_attach(struct transport *tr, const struct region_grant *grant,
			struct region **region_out)
{
	struct verbs *verbs = verbs_of(tr);
	struct verbs_region *mine = mem_zalloc(sizeof(*mine));
	union verbs_any message = { .attach = { .request = ++verbs->requests,
						.grant_bytes = grant->bytes } };
	const struct verbs_attached *attached = &message.attached;
	uint64_t deadline = transport_give_up_ns(tr);
	int ret;

	if (!mine)
		return error_set(-ENOMEM, "cannot allocate memory for a region");
	memcpy(message.attach.grant, grant->data, grant->bytes);
	message_seal(&message, VERBS_ATTACH);
	ret = post_message(&verbs->post, &message);
	if (ret)
		goto err_free;
	/* Any failure ends the link: a late answer is not taken for that to the next request. */
	ret = link_receive(verbs->post.link, &message, deadline);
	if (ret == 0 &&
	    (message.head.type != VERBS_ATTACHED || attached->request != verbs->requests))
		ret = error_set(-EPROTO, "the memory node answered with type %u to request %u",
				message.head.type, verbs->requests);
	if (ret)
		ret = post_fail(&verbs->post, ret, error_last());
	else if (attached->status)
		ret = error_set(attached->status, "memory node: %s", attached->text);
	if (ret)
		goto err_free;
	mine->region = (struct region){ .id = attached->region,
					.rights = attached->rights,
					.size = attached->size,
					.incarnation = verbs->post.link->welcome.incarnation };
	mine->address = attached->address;
	mine->request = attached->request;
	memcpy(mine->keys, attached->key, sizeof(mine->keys));
	mine->next = verbs->regions;
	verbs->regions = mine;
	*region_out = &mine->region;
	return 0;

err_free:
	mem_free(mine);
	return ret;
}

/*
 * Waits for outstanding work, sends a DETACH and frees the region. If the link has ended, the
 * target has closed the region itself.
 */
static void verbs_detach(struct transport *tr, struct region *region)
{
	struct verbs *verbs = verbs_of(tr);
	struct verbs_region **at = &verbs->regions;
	struct verbs_region *mine = (struct verbs_region *)region;
	union verbs_any message = { .detach = { .region = region->id, .request = mine->request } };

	while (*at != mine)
		at = &(*at)->next;
	*at = mine->next;
	if (!fork_happened(tr->forks) && post_order(tr) == 0) {
		message_seal(&message, VERBS_DETACH);
		if (post_message(&verbs->post, &message))
			log_debug("detach region %u: %s", region->id, error_last());
	}
	mem_free(mine);
}

/* -------- closing and opening -------- */

static void verbs_close(struct transport *tr)
{
	struct verbs *verbs = verbs_of(tr);
	bool forked = fork_happened(tr->forks);

	if (!forked && !tr->broken && post_order(tr))
		log_warn("close: %s", error_last());
	if (!forked)
		link_cut(verbs->post.link);
	while (verbs->regions) {
		struct verbs_region *mine = verbs->regions;

		verbs->regions = mine->next;
		mem_free(mine);
	}
	post_fini(&verbs->post);
	link_close(verbs->post.link, forked);
	mem_free(verbs);
}

static int verbs_reach(struct transport *tr, const struct mem *mem)
{
	return verbs_device_reach(verbs_of(tr)->post.link->device, mem);
}

/* No persist: without the capability it is not called; a node persists its regions itself. */
static const struct transport_ops verbs_ops = {
	.name = "verbs",
	.attach = verbs_attach,
	.detach = verbs_detach,
	.submit = post_submit,
	.poll = post_poll,
	.order = post_order,
	.reach = verbs_reach,
	.close = verbs_close,
};

static int number_of(const char *name, uint32_t max, uint32_t *value_out)
{
	const char *text = getenv(name);
	char *end;
	unsigned long value;

	if (!text || !*text)
		return 0;
	value = strtoul(text, &end, 10);
	if (*end || value == 0 || value > max)
		return error_set(-EINVAL, "%s=%s: must be 1 to %u", name, text, max);
	*value_out = (uint32_t)value;
	return 0;
}

int verbs_open(const char *rest, const struct transport_opts *opts, struct transport **tr_out)
{
	struct link_opts link = { .clock = opts->clock,
				  .timeout_ns = opts->open_ns,
				  .client_id = opts->client_id };
	struct node_address address;
	struct transport *tr = NULL;
	struct post *post;
	int ret = node_address_parse(rest, &address);

	if (ret == 0 && !*address.host)
		ret = error_set(-EINVAL, "transport uri \"verbs:%s\": the host is missing", rest);
	if (ret == 0)
		ret = number_of("RLV_VERBS_QPS", VERBS_LINK_QPS, &link.qps);
	if (ret == 0)
		ret = number_of("RLV_VERBS_DEPTH", 1 << 16, &link.depth);
	if (ret == 0)
		ret = number_of("RLV_VERBS_ACK_TIMEOUT", LINK_ACK_TIMEOUT_MAX, &link.ack_timeout);
	if (ret == 0)
		ret = transport_new(sizeof(struct verbs), &verbs_ops, TRANSPORT_ASYNC, opts, &tr);
	if (ret)
		return ret;
	post = &verbs_of(tr)->post;
	link.host = address.host;
	link.port = address.port;
	link.replaces = opts->replaces;
	ret = link_open(&link, &post->link);
	if (ret == 0)
		ret = post_init(post);
	if (ret) {
		post_fini(post);
		link_close(post->link, false);
		mem_free(tr);
		return ret;
	}
	tr->link = post->link->number;
	*tr_out = mapped_over(tr, address.path, post->link->welcome.boot_id, opts);
	return 0;
}
