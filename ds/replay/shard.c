#include "ds/replay/shard.h"

#include "base/mem/alloc.h"
#include "base/bits.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* -------- format -------- */

struct part_spec shard_spec(const struct table_desc *desc)
{
	struct part_spec spec = {
		.kind = OBJECT_TABLE,
		.object = desc->table_id,
		.part = desc->shard,
		.words_off = desc->words_off + offsetof(struct shard_words, part),
		.slots_off = desc->slots_off,
		.max_clients = desc->max_clients,
		.name = desc->name,
		.desc = desc,
		.desc_bytes = (uint32_t)table_desc_used_bytes(desc),
		.told = {
			/* the first block's header */
			[PART_TOLD_USED] = part_told_at(REGION_TREE, desc->headers_off),
			/* only the control shard's limiter counts */
			[PART_TOLD_DUTY] = part_told_at(REGION_PAGES,
							LIMITS_OFF + offsetof(struct view_limits,
									      ins_committed)),
			/* the next ticket */
			[PART_TOLD_KIND] = part_told_at(REGION_TREE,
							desc->words_off +
								offsetof(struct shard_words, head)),
		},
	};

	memcpy(spec.uuid, desc->uuid, sizeof(spec.uuid));
	for (uint32_t role = REGION_TREE; role < REGION_ROLES; role++)
		spec.bytes[role] = table_region_bytes(desc, role);
	return spec;
}

int shard_format(const struct part_regions *regions, const struct table_desc *desc,
		 const struct shard_ids *ids)
{
	struct part_spec spec = shard_spec(desc);
	struct region *tree = regions->at[REGION_TREE];
	uint64_t head = ids->first_ticket & BLOCK_SEQ_MASK;
	int rc = part_format(regions, &spec, &ids->origin);

	/* The words that do not start as zero. slot_take initialises the pages. */
	if (!rc)
		rc = transport_store(tree, desc->words_off + offsetof(struct shard_words, head),
				     &head, sizeof(head));
	for (uint32_t i = 0; !rc && i < desc->n_views; i++) {
		const struct view_desc *view = &desc->views[i];
		uint64_t one = min_u64(view->scale, view->max_prio);

		rc = transport_store(tree,
				     view->words_off + offsetof(struct view_words, max_priority),
				     &one, sizeof(one));
	}
	return rc ? rc : part_publish(regions);
}

/* -------- open -------- */

int shard_open(const struct part_regions *regions, const struct table_desc *want,
	       struct shard **shard_out)
{
	struct shard *shard = mem_aligned(WIRE_LINE, sizeof(*shard));
	struct part_spec spec;
	int rc;

	if (!shard)
		return error_set(-ENOMEM, "shard: cannot allocate memory");
	memset(shard, 0, sizeof(*shard));
	shard->tree = regions->at[REGION_TREE];
	shard->rows = regions->at[REGION_ROWS];
	/* The authoritative word first: a dropped shard is not read further. */
	rc = part_check_live(regions, OBJECT_TABLE);
	if (!rc)
		rc = transport_fetch(shard->tree, DESC_OFF, &shard->desc, sizeof(shard->desc));
	if (!rc)
		rc = table_desc_check(&shard->desc);
	if (!rc && want && !table_desc_is(&shard->desc, want))
		rc = error_set(-EBADMSG,
			       "shard %u: its descriptor is not the catalog's: it was changed, or "
			       "the region is another shard's",
			       want->shard);
	if (rc)
		goto err_free;
	spec = shard_spec(&shard->desc);
	rc = part_open(&shard->part, regions, &spec);
	if (rc)
		goto err_free;
	for (uint32_t i = 0; i < shard->desc.n_views; i++) {
		const struct view_desc *view = &shard->desc.views[i];
		struct tree_place place = {
			.leaves_off = view->leaves_off,
			.inner_off = { view->inner_off[0], view->inner_off[1] },
			.max_prio = view->max_prio,
		};

		sumtree_init(&shard->trees[i], shard->tree, &shard->desc.tree, &place);
	}
	*shard_out = shard;
	return 0;
err_free:
	mem_free(shard);
	return rc;
}

void shard_close(struct shard **shard)
{
	if (!*shard)
		return;
	part_close(&(*shard)->part);
	mem_free(*shard);
	*shard = NULL;
}

int shard_open_part(const void *desc, uint32_t s, const struct part_regions *regions,
		    struct part **part_out)
{
	struct table_desc want = *(const struct table_desc *)desc;
	struct shard *shard;
	int ret;

	table_desc_seal(&want, s);
	ret = shard_open(regions, &want, &shard);
	if (ret == 0)
		*part_out = &shard->part;
	return ret;
}

void shard_close_part(struct part *part)
{
	struct shard *shard = shard_of(part);

	shard_close(&shard);
}

int shard_read_headers(const struct shard *shard, uint64_t *headers_out)
{
	const uint32_t at_once = 4096;
	int rc = 0;

	for (uint32_t b = 0; !rc && b < shard->desc.blocks; b += at_once)
		rc = transport_fetch(shard->tree, shard_header_off(shard, b), headers_out + b,
				     (uint32_t)min_u64(at_once, shard->desc.blocks - b) * 8);
	return rc;
}
