/*
 * test_layouts.c - golden layouts: what lies where in everything that two processes, machines or
 * versions share, and the bytes of examples.
 *
 * Each text file of this folder belongs to one format version, which is in its name. A layout that
 * has changed needs a new version, and with it a new file: RLV_GOLDEN_WRITE=1 writes those that are
 * not there, and never changes one that is.
 */
#include "tests/golden/golden.h"
#include "tests/support/test.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "ds/chain/chain.h"
#include "ds/heap/stripe/manifest.h"
#include "ds/part/superblock.h"
#include "transport/pool/extents.h"
#include "transport/attach/grants.h"
#include "transport/attach/packet.h"
#include "transport/pool/pool_super.h"
#include "wire/attach_layout.h"
#include "wire/heap_layout.h"
#include "wire/pool_layout.h"
#include "wire/region.h"
#include "wire/table_layout.h"
#include "wire/ofi_layout.h"
#include "wire/verbs_layout.h"

static void put_region_structs(FILE *out)
{
	STRUCT(region_superblock);
	FIELD(region_superblock, magic);
	FIELD(region_superblock, format_major);
	FIELD(region_superblock, format_minor);
	FIELD(region_superblock, kind);
	FIELD(region_superblock, compat);
	FIELD(region_superblock, ro_compat);
	FIELD(region_superblock, incompat);
	FIELD(region_superblock, uuid);
	FIELD(region_superblock, size);
	FIELD(region_superblock, extent_size);
	FIELD(region_superblock, region);
	FIELD(region_superblock, atomic_domain);
	FIELD(region_superblock, ms_term);
	FIELD(region_superblock, incarnation);
	FIELD(region_superblock, object);
	FIELD(region_superblock, part);
	FIELD(region_superblock, store_uuid);
	FIELD(region_superblock, role);
	FIELD(region_superblock, desc_bytes);
	FIELD(region_superblock, name);
	FIELD(region_superblock, told);
	FIELD(region_superblock, reserved0);
	FIELD(region_superblock, crc);
	FIELD(region_superblock, reserved1);
	FIELD(region_superblock, state);
	FIELD(region_superblock, mark);
	FIELD(region_superblock, opener);
	FIELD(region_superblock, found);
	FIELD(region_superblock, recovered);
	FIELD(region_superblock, loading);
	FIELD(region_superblock, reserved2);
	STRUCT(tree_geometry);
	FIELD(tree_geometry, leaves);
	FIELD(tree_geometry, levels);
	FIELD(tree_geometry, fanout);
	FIELD(tree_geometry, inner_bytes);
	FIELD(tree_geometry, reserved);
	STRUCT(shard_words);
	FIELD(shard_words, head);
	FIELD(shard_words, part.dirty);
	FIELD(shard_words, part.epoch);
	FIELD(shard_words, part.clean);
	STRUCT(view_words);
	FIELD(view_words, max_priority);
	FIELD(view_words, reserved);
	STRUCT(view_limits);
	FIELD(view_limits, ins_admitted);
	FIELD(view_limits, ins_committed);
	FIELD(view_limits, smp_admitted);
	FIELD(view_limits, smp_committed);
	STRUCT(slot_limits);
	FIELD(slot_limits, ins_admitted);
	FIELD(slot_limits, ins_committed);
	FIELD(slot_limits, smp_admitted);
	FIELD(slot_limits, smp_committed);
	STRUCT(client_slot);
	FIELD(client_slot, state);
	FIELD(client_slot, pid);
	FIELD(client_slot, reserved0);
	FIELD(client_slot, start_time);
	FIELD(client_slot, boot_id);
	FIELD(client_slot, lease);
	FIELD(client_slot, reserved1);
	STRUCT(client_page);
	FIELD(client_page, pin);
	FIELD(client_page, limits);
	FIELD(client_page, reserved);
	STRUCT(row_tail);
	FIELD(row_tail, policy_version);
	FIELD(row_tail, step);
	FIELD(row_tail, stream);
	FIELD(row_tail, flags);
	FIELD(row_tail, reserved);
	FIELD(row_tail, gen);
	FIELD(row_tail, crc);
}

static void put_table_structs(FILE *out)
{
	STRUCT(column_desc);
	FIELD(column_desc, name);
	FIELD(column_desc, dtype);
	FIELD(column_desc, role);
	FIELD(column_desc, ndim);
	FIELD(column_desc, shape);
	FIELD(column_desc, bytes);
	FIELD(column_desc, offset);
	FIELD(column_desc, reserved);
	STRUCT(limit_desc);
	FIELD(limit_desc, min_size);
	FIELD(limit_desc, spi);
	FIELD(limit_desc, min_diff);
	FIELD(limit_desc, max_diff);
	STRUCT(view_desc);
	FIELD(view_desc, selector);
	FIELD(view_desc, stack);
	FIELD(view_desc, n_step);
	FIELD(view_desc, flags);
	FIELD(view_desc, window);
	FIELD(view_desc, future);
	FIELD(view_desc, period);
	FIELD(view_desc, max_times_sampled);
	FIELD(view_desc, max_staleness);
	FIELD(view_desc, reserved0);
	FIELD(view_desc, alpha);
	FIELD(view_desc, eps);
	FIELD(view_desc, scale);
	FIELD(view_desc, max_prio);
	FIELD(view_desc, limit);
	FIELD(view_desc, words_off);
	FIELD(view_desc, inner_off);
	FIELD(view_desc, leaves_off);
	FIELD(view_desc, counts_off);
	FIELD(view_desc, reserved1);
	STRUCT(table_desc);
	FIELD(table_desc, magic);
	FIELD(table_desc, bytes);
	FIELD(table_desc, table_id);
	FIELD(table_desc, uuid);
	FIELD(table_desc, name);
	FIELD(table_desc, capacity);
	FIELD(table_desc, n_shards);
	FIELD(table_desc, shard);
	FIELD(table_desc, slots);
	FIELD(table_desc, block);
	FIELD(table_desc, blocks);
	FIELD(table_desc, window_max);
	FIELD(table_desc, row_bytes);
	FIELD(table_desc, tail_off);
	FIELD(table_desc, n_columns);
	FIELD(table_desc, n_views);
	FIELD(table_desc, max_writers);
	FIELD(table_desc, max_clients);
	FIELD(table_desc, flags);
	FIELD(table_desc, reserved0);
	FIELD(table_desc, tree);
	FIELD(table_desc, words_off);
	FIELD(table_desc, slots_off);
	FIELD(table_desc, headers_off);
	FIELD(table_desc, tree_bytes);
	FIELD(table_desc, rows_bytes);
	FIELD(table_desc, slots_bytes);
	FIELD(table_desc, pages_bytes);
	FIELD(table_desc, reserved1);
	FIELD(table_desc, crc);
	FIELD(table_desc, views);
	FIELD(table_desc, columns);
}

static void put_pool_structs(FILE *out)
{
	STRUCT(pool_superblock);
	FIELD(pool_superblock, magic);
	FIELD(pool_superblock, format_major);
	FIELD(pool_superblock, format_minor);
	FIELD(pool_superblock, reserved0);
	FIELD(pool_superblock, compat);
	FIELD(pool_superblock, ro_compat);
	FIELD(pool_superblock, incompat);
	FIELD(pool_superblock, uuid);
	FIELD(pool_superblock, extent_size);
	FIELD(pool_superblock, table_off);
	FIELD(pool_superblock, max_entries);
	FIELD(pool_superblock, store_uuid);
	FIELD(pool_superblock, store_name);
	FIELD(pool_superblock, layout);
	FIELD(pool_superblock, bytes);
	FIELD(pool_superblock, reserved1);
	FIELD(pool_superblock, crc);
	FIELD(pool_superblock, reserved2);
	STRUCT(extent_entry);
	FIELD(extent_entry, region);
	FIELD(extent_entry, kind);
	FIELD(extent_entry, role);
	FIELD(extent_entry, object);
	FIELD(extent_entry, part);
	FIELD(extent_entry, first);
	FIELD(extent_entry, extents);
	FIELD(extent_entry, state);
	STRUCT(extent_table);
	FIELD(extent_table, magic);
	FIELD(extent_table, seq);
	FIELD(extent_table, extents);
	FIELD(extent_table, n);
	FIELD(extent_table, last_region);
	FIELD(extent_table, reserved);
	FIELD(extent_table, crc);
	FIELD(extent_table, entries);
}

static void put_attach_structs(FILE *out)
{
	STRUCT(message_head);
	FIELD(message_head, magic);
	FIELD(message_head, version);
	FIELD(message_head, type);
	FIELD(message_head, bytes);
	FIELD(message_head, crc);
	STRUCT(attach_hello);
	FIELD(attach_hello, head);
	FIELD(attach_hello, client_id);
	FIELD(attach_hello, pid);
	FIELD(attach_hello, reserved);
	FIELD(attach_hello, start_time);
	STRUCT(attach_hello_reply);
	FIELD(attach_hello_reply, head);
	FIELD(attach_hello_reply, status);
	FIELD(attach_hello_reply, flags);
	FIELD(attach_hello_reply, incarnation);
	FIELD(attach_hello_reply, text);
	STRUCT(shm_grant);
	FIELD(shm_grant, magic);
	FIELD(shm_grant, version);
	FIELD(shm_grant, reserved);
	FIELD(shm_grant, region);
	FIELD(shm_grant, rights);
	FIELD(shm_grant, client_id);
	FIELD(shm_grant, incarnation);
	FIELD(shm_grant, secret);
	FIELD(shm_grant, slot);
	FIELD(shm_grant, crc);
	STRUCT(attach_region);
	FIELD(attach_region, head);
	FIELD(attach_region, grant_bytes);
	FIELD(attach_region, page);
	FIELD(attach_region, grant);
	STRUCT(attach_region_reply);
	FIELD(attach_region_reply, head);
	FIELD(attach_region_reply, status);
	FIELD(attach_region_reply, flags);
	FIELD(attach_region_reply, region);
	FIELD(attach_region_reply, rights);
	FIELD(attach_region_reply, offset);
	FIELD(attach_region_reply, size);
	FIELD(attach_region_reply, incarnation);
	FIELD(attach_region_reply, text);
	STRUCT(attach_bye);
	FIELD(attach_bye, head);
}

static void put_words(FILE *out)
{
	WORD(leaf_make(2, 0x12345, 0x6789abcdefull));
	WORD(block_make(true, 0x1234, 0x56789abcdef0ull));
	WORD(block_gen(1000, 7));
	WORD(epoch_make(0x12345678, EPOCH_DUAL, 0x9ab));
	WORD(count_make(0x12345, 0x6789abcd));
	WORD(key_make(0x12, 0x3a5, 0x123456, 0xabcdef));
	WORD(REGION_FORMATTING);
	WORD(REGION_LIVE);
	WORD(REGION_DROPPED);
	WORD(REGION_ORPHANED);
	WORD(REGION_MARKED);
	WORD(SLOT_FREE);
	WORD(SLOT_LIVE);
	WORD(SLOT_FENCED);
	WORD(SLOT_IDLE);
	WORD(ROW_FIRST);
	WORD(ROW_TERMINATED);
	WORD(ROW_TRUNCATED);
	WORD(ROW_REPEATED);
	WORD(ROW_FINAL);
	WORD(ROW_FILLER);
	WORD(TABLE_DESC_MAGIC);
	WORD(DESC_OFF);
	WORD(ROWS_OFF);
}

static void put_region(FILE *out)
{
	const struct region region = { .id = 9, .size = 4 << 20 };
	struct region_superblock sb = { .kind = OBJECT_TABLE,
					.object = 3,
					.part = 4,
					.role = REGION_TREE,
					.atomic_domain = ATOMIC_DOMAIN_CPU,
					.uuid = { 1, 2, 3 },
					.store_uuid = { 5, 6 },
					.ms_term = 7,
					.incarnation = 8,
					.name = "t",
					.desc_bytes = 9,
					.told = { 10, 11, part_told_at(REGION_PAGES, 12) } };

	superblock_seal(&sb, &region);
	put_region_structs(out);
	put_table_structs(out);
	put_words(out);
	put_bytes(out, "superblock", &sb, sizeof(sb));
}

static void put_pool(FILE *out)
{
	static struct extent_table table;
	const uint8_t uuid[16] = { 1, 2, 3 }, store_uuid[16] = { 4, 5, 6 };
	struct pool_superblock sb;

	assert_int_equal(pool_super_make(&sb, POOL_EXTENTS), 0);
	memcpy(sb.uuid, uuid, sizeof(sb.uuid));
	pool_super_own(&sb, store_uuid, "default");
	extents_make_table(&table, 100);
	*extents_take_entry(&table) = (struct extent_entry){
		.region = 9,
		.kind = OBJECT_TABLE,
		.role = REGION_TREE,
		.object = 3,
		.part = 4,
		.first = 5,
		.extents = 6,
		.state = EXTENT_LIVE,
	};
	*extents_take_entry(&table) = (struct extent_entry){
		.region = 10,
		.kind = OBJECT_TABLE,
		.role = REGION_ROWS,
		.object = 3,
		.part = 4,
		.first = 11,
		.extents = 2,
		.state = EXTENT_QUARANTINE,
	};
	table.last_region = 10;
	extents_seal(&table);
	put_pool_structs(out);
	WORD(POOL_TABLE_OFF0);
	WORD(POOL_TABLE_OFF1);
	WORD(POOL_SUPERBLOCK_OFF1);
	put_bytes(out, "superblock", &sb, sizeof(sb));
	put_bytes(out, "table", &table, sizeof(table));
}

static void put_packet(FILE *out, const char *name, struct packet *packet, enum attach_type type)
{
	packet_seal(packet, type);
	put_bytes(out, name, packet->bytes, packet->head.bytes);
}

static void put_attach(FILE *out)
{
	struct packet hello = { 0 }, greeted = { 0 }, ask = { 0 }, given = { 0 }, bye = { 0 };
	struct shm_grant grant = { .magic = GRANT_MAGIC,
				   .version = GRANT_VERSION,
				   .region = 1,
				   .rights = 7,
				   .client_id = 2,
				   .incarnation = 3,
				   .secret = { 4 },
				   .slot = 5 };

	grant.crc = crc32c(0, &grant, offsetof(struct shm_grant, crc));
	hello.hello.client_id = 1;
	hello.hello.pid = 2;
	hello.hello.start_time = 3;
	greeted.hello_reply.status = -13;
	greeted.hello_reply.flags = ATTACH_PERSISTENT | ATTACH_HUGE;
	greeted.hello_reply.incarnation = 4;
	strcpy(greeted.hello_reply.text, "no");
	ask.region.grant_bytes = sizeof(grant);
	memcpy(ask.region.grant, &grant, sizeof(grant));
	given.region_reply.region = 1;
	given.region_reply.rights = 7;
	given.region_reply.offset = 1 << 21;
	given.region_reply.size = 1 << 22;
	given.region_reply.incarnation = 4;
	put_attach_structs(out);
	put_packet(out, "hello", &hello, ATTACH_HELLO);
	put_packet(out, "hello_reply", &greeted, ATTACH_HELLO_REPLY);
	put_packet(out, "region", &ask, ATTACH_REGION);
	put_packet(out, "region_reply", &given, ATTACH_REGION_REPLY);
	put_packet(out, "bye", &bye, ATTACH_BYE);
}

static void put_verbs_structs(FILE *out)
{
	STRUCT(message_head);
	FIELD(message_head, magic);
	FIELD(message_head, version);
	FIELD(message_head, type);
	FIELD(message_head, bytes);
	FIELD(message_head, crc);
	STRUCT(verbs_hello);
	FIELD(verbs_hello, head);
	FIELD(verbs_hello, client_id);
	FIELD(verbs_hello, link);
	FIELD(verbs_hello, index);
	FIELD(verbs_hello, n_qps);
	FIELD(verbs_hello, replaces);
	STRUCT(verbs_welcome);
	FIELD(verbs_welcome, head);
	FIELD(verbs_welcome, incarnation);
	FIELD(verbs_welcome, boot_id);
	FIELD(verbs_welcome, flags);
	FIELD(verbs_welcome, reserved);
	STRUCT(verbs_refusal);
	FIELD(verbs_refusal, head);
	FIELD(verbs_refusal, status);
	FIELD(verbs_refusal, text);
	STRUCT(verbs_attach);
	FIELD(verbs_attach, head);
	FIELD(verbs_attach, request);
	FIELD(verbs_attach, grant_bytes);
	FIELD(verbs_attach, grant);
	STRUCT(verbs_attached);
	FIELD(verbs_attached, head);
	FIELD(verbs_attached, request);
	FIELD(verbs_attached, status);
	FIELD(verbs_attached, region);
	FIELD(verbs_attached, rights);
	FIELD(verbs_attached, address);
	FIELD(verbs_attached, size);
	FIELD(verbs_attached, key);
	FIELD(verbs_attached, text);
	STRUCT(verbs_detach);
	FIELD(verbs_detach, head);
	FIELD(verbs_detach, region);
	FIELD(verbs_detach, request);
}

union verbs_message_any {
	struct message_head head;
	struct verbs_hello hello;
	struct verbs_welcome welcome;
	struct verbs_refusal refusal;
	struct verbs_attach attach;
	struct verbs_attached attached;
	struct verbs_detach detach;
};

static void put_verbs_message(FILE *out, const char *name, union verbs_message_any *message,
			      size_t bytes)
{
	message->head.magic = VERBS_MAGIC;
	message->head.version = VERBS_VERSION;
	message->head.bytes = (uint32_t)bytes;
	message->head.crc = crc32c(0, message, bytes);
	put_bytes(out, name, message, bytes);
}

static void put_verbs(FILE *out)
{
	union verbs_message_any hello = { .hello = { .head.type = VERBS_HELLO,
						     .client_id = 1,
						     .link = 2,
						     .index = 3,
						     .n_qps = 4,
						     .replaces = 5 } };
	union verbs_message_any welcome = { .welcome = { .head.type = VERBS_WELCOME,
							 .incarnation = 5,
							 .boot_id = { 6 },
							 .flags = VERBS_PERSISTENT } };
	union verbs_message_any refusal = {
		.refusal = { .head.type = VERBS_REFUSAL, .status = -13, .text = "no" }
	};
	union verbs_message_any attach = { .attach = { .head.type = VERBS_ATTACH,
						       .request = 7,
						       .grant_bytes = 2,
						       .grant = { 8, 9 } } };
	union verbs_message_any attached = { .attached = { .head.type = VERBS_ATTACHED,
							   .request = 7,
							   .region = 10,
							   .rights = 7,
							   .address = 1 << 21,
							   .size = 1 << 22,
							   .key = { 11, 12 } } };
	union verbs_message_any detach = {
		.detach = { .head.type = VERBS_DETACH, .region = 10, .request = 7 }
	};

	put_verbs_structs(out);
	put_verbs_message(out, "hello", &hello, sizeof(hello.hello));
	put_verbs_message(out, "welcome", &welcome, sizeof(welcome.welcome));
	put_verbs_message(out, "refusal", &refusal, sizeof(refusal.refusal));
	put_verbs_message(out, "attach", &attach, sizeof(attach.attach));
	put_verbs_message(out, "attached", &attached, sizeof(attached.attached));
	put_verbs_message(out, "detach", &detach, sizeof(detach.detach));
}

static void put_ofi_structs(FILE *out)
{
	STRUCT(ofi_hello);
	FIELD(ofi_hello, head);
	FIELD(ofi_hello, client_id);
	FIELD(ofi_hello, link);
	FIELD(ofi_hello, replaces);
	STRUCT(ofi_welcome);
	FIELD(ofi_welcome, head);
	FIELD(ofi_welcome, incarnation);
	FIELD(ofi_welcome, boot_id);
	FIELD(ofi_welcome, provider);
	STRUCT(ofi_refusal);
	FIELD(ofi_refusal, head);
	FIELD(ofi_refusal, status);
	FIELD(ofi_refusal, text);
	STRUCT(ofi_attach);
	FIELD(ofi_attach, head);
	FIELD(ofi_attach, request);
	FIELD(ofi_attach, grant_bytes);
	FIELD(ofi_attach, grant);
	STRUCT(ofi_attached);
	FIELD(ofi_attached, head);
	FIELD(ofi_attached, request);
	FIELD(ofi_attached, status);
	FIELD(ofi_attached, region);
	FIELD(ofi_attached, rights);
	FIELD(ofi_attached, size);
	FIELD(ofi_attached, address);
	FIELD(ofi_attached, key);
	FIELD(ofi_attached, endpoint_bytes);
	FIELD(ofi_attached, opening);
	FIELD(ofi_attached, endpoint);
	FIELD(ofi_attached, text);
	STRUCT(ofi_detach);
	FIELD(ofi_detach, head);
	FIELD(ofi_detach, region);
	FIELD(ofi_detach, request);
	STRUCT(ofi_list);
	FIELD(ofi_list, magic);
	FIELD(ofi_list, n);
	STRUCT(ofi_request);
	FIELD(ofi_request, off);
	FIELD(ofi_request, bytes);
	FIELD(ofi_request, opening);
	FIELD(ofi_request, verb);
	FIELD(ofi_request, guard);
}

union ofi_message_any {
	struct message_head head;
	struct ofi_hello hello;
	struct ofi_welcome welcome;
	struct ofi_refusal refusal;
	struct ofi_attach attach;
	struct ofi_attached attached;
	struct ofi_detach detach;
};

static void put_ofi_message(FILE *out, const char *name, union ofi_message_any *message,
			    size_t bytes)
{
	message->head.magic = OFI_MAGIC;
	message->head.version = OFI_VERSION;
	message->head.bytes = (uint32_t)bytes;
	message->head.crc = crc32c(0, message, bytes);
	put_bytes(out, name, message, bytes);
}

static void put_ofi(FILE *out)
{
	union ofi_message_any hello = {
		.hello = { .head.type = OFI_HELLO, .client_id = 1, .link = 2, .replaces = 3 }
	};
	union ofi_message_any welcome = { .welcome = { .head.type = OFI_WELCOME,
						       .incarnation = 4,
						       .boot_id = { 5 },
						       .provider = "tcp" } };
	union ofi_message_any refusal = {
		.refusal = { .head.type = OFI_REFUSAL, .status = -13, .text = "no" }
	};
	union ofi_message_any attach = { .attach = { .head.type = OFI_ATTACH,
						     .request = 6,
						     .grant_bytes = 2,
						     .grant = { 7, 8 } } };
	union ofi_message_any attached = { .attached = { .head.type = OFI_ATTACHED,
							 .request = 6,
							 .region = 9,
							 .rights = 7,
							 .size = 1 << 22,
							 .address = 1 << 21,
							 .key = 10,
							 .endpoint_bytes = 2,
							 .endpoint = { 11, 12 } } };
	union ofi_message_any detach = {
		.detach = { .head.type = OFI_DETACH, .region = 9, .request = 6 }
	};

	put_ofi_structs(out);
	put_ofi_message(out, "hello", &hello, sizeof(hello.hello));
	put_ofi_message(out, "welcome", &welcome, sizeof(welcome.welcome));
	put_ofi_message(out, "refusal", &refusal, sizeof(refusal.refusal));
	put_ofi_message(out, "attach", &attach, sizeof(attach.attach));
	put_ofi_message(out, "attached", &attached, sizeof(attached.attached));
	put_ofi_message(out, "detach", &detach, sizeof(detach.detach));
}

/* -------- comparing -------- */

/* A heap with stripes, the hidden key of one, a manifest and an intent. */
static void put_stripes(FILE *out)
{
	const struct heap_wish wish = { .name = "h",
					.keys = 100,
					.bytes = 1 << 20,
					.extent_bytes = 1 << 16,
					.n_parts = 2,
					.max_clients = 4,
					.stripe_bytes = 1 << 17 };
	struct stripe_ref refs[] = { { 5, 6 }, { 7, 8 } };
	struct stripes_intent intent = { .key = { "key", 3, 0 },
					 .part = 1,
					 .fresh = { .n = 1, .refs = refs },
					 .old = { .owner = 3, .n = 1, .refs = refs + 1 },
					 .replaces = 9 };
	const struct stripes stripes = {
		.owner = 2, .n = 2, .bytes = 200000, .share = 130944, .refs = refs
	};
	uint8_t manifest[sizeof(struct stripe_manifest) + sizeof(refs)];
	struct stripe_name name;
	struct heap_desc desc;
	uint64_t len;
	void *bytes = stripes_intent_write(&intent, &len);

	assert_non_null(bytes);
	assert_int_equal(heap_plan(&wish, &desc), 0);
	put_bytes(out, "descriptor of a heap with stripes", &desc, sizeof(desc));
	stripe_name_data(&desc, 2, 5, &name);
	put_bytes(out, "hidden key", &name.bytes, sizeof(name.bytes));
	stripes_write(&stripes, manifest);
	put_bytes(out, "manifest of stripes", manifest, sizeof(manifest));
	put_bytes(out, "intent", bytes, len);
	free(bytes);
}

static void put_heap(FILE *out)
{
	const struct chain_key key = chain_key("key", 3, 4);
	const struct heap_entry entry = { .version = 0x1234567,
					  .prev = 2,
					  .len = 5,
					  .bucket = 6,
					  .flags = ENTRY_DELETED,
					  .writer = 7,
					  .gen = 8,
					  .epoch = 9 };
	uint8_t bytes[128] = { 0 };
	struct heap_cell cell = { 0 };

	STRUCT(heap_desc);
	STRUCT(heap_words);
	STRUCT(heap_pin);
	STRUCT(heap_extent);
	STRUCT(heap_head);
	STRUCT(heap_cell);
	STRUCT(heap_entry);
	STRUCT(heap_manifest);
	STRUCT(heap_piece);
	STRUCT(stripe_key);
	STRUCT(stripe_manifest);
	STRUCT(stripe_ref);
	STRUCT(stripe_intent);
	WORD(HEAP_WORDS_OFF);
	WORD(HEAP_PINS_OFF);
	WORD(HEAP_ROWS_OFF);
	WORD(key.hash);
	WORD(chain_place(key.hash, 1000));
	WORD(chain_part(key.hash, 1000));
	WORD(head_make(0x1234567, 0x89abc0, HEAD_DELETED | chain_head_tag(&key)));
	WORD(extent_make(0x123, 0x45, 0x6789abcdef));
	chain_entry_write(bytes, &entry, &key, "value");
	put_bytes(out, "entry", bytes, sizeof(bytes));
	(void)chain_cell_write(&cell, 0x1234, &key, &(struct chain_value){ 5, "value", 5 });
	put_bytes(out, "cell", &cell, sizeof(cell));
	(void)chain_cell_write(&cell, 0x1234, &key, &(struct chain_value){ 5, NULL, 500 });
	put_bytes(out, "cell without a value", &cell, sizeof(cell));
	put_stripes(out);
}

TEST(layout__of_heaps)
{
	check_golden("heap-v1", put_heap);
}

TEST(layout__of_regions)
{
	char name[64];

	(void)snprintf(name, sizeof(name), "region-v%d.%d", REGION_FORMAT_MAJOR,
		       REGION_FORMAT_MINOR);
	check_golden(name, put_region);
}

TEST(layout__of_pools)
{
	char name[64];

	(void)snprintf(name, sizeof(name), "pool-v%d.%d", POOL_FORMAT_MAJOR, POOL_FORMAT_MINOR);
	check_golden(name, put_pool);
}

TEST(layout__of_attach_messages)
{
	char name[64];

	(void)snprintf(name, sizeof(name), "attach-v%d", ATTACH_VERSION);
	check_golden(name, put_attach);
}

TEST(layout__of_verbs_messages)
{
	char name[64];

	(void)snprintf(name, sizeof(name), "verbs-v%d", VERBS_VERSION);
	check_golden(name, put_verbs);
}

TEST(layout__of_ofi_messages)
{
	char name[64];

	(void)snprintf(name, sizeof(name), "ofi-v%d", OFI_VERSION);
	check_golden(name, put_ofi);
}

int main(void)
{
	return test_run(NULL, NULL);
}
