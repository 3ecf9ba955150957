/*
 * grants.c - a table of grants, looked up by slot, changed by a walk (control plane).
 */
#include "transport/attach/grants.h"

#include <errno.h>
#include <string.h>

#include "base/mem/alloc.h"
#include "base/crc32c.h"
#include "base/os/random.h"

void grants_fini(struct grants *grants)
{
	mem_free(grants->slots);
	*grants = (struct grants){ 0 };
}

int grants_add(struct grants *grants, const struct grant_slot *want, struct region_grant *grant_out)
{
	uint32_t i = grants->n, capacity = grants->capacity ? 2 * grants->capacity : 64;
	struct shm_grant wire = { .magic = GRANT_MAGIC, .version = GRANT_VERSION };
	struct grant_slot *slots, new = *want;

	/* The slot of an equal grant, else a free one, else the one behind the last. */
	for (uint32_t k = grants->n; k-- > 0;) {
		const struct grant_slot *slot = &grants->slots[k];
		bool equal = slot->region == want->region && slot->client_id == want->client_id &&
			     slot->rights == want->rights && slot->off == want->off &&
			     slot->len == want->len;

		if (equal || slot->region == 0)
			i = k;
		if (equal)
			break;
	}
	if (i == grants->capacity) {
		slots = mem_resize(grants->slots, capacity * sizeof(*slots));
		if (!slots)
			return error_set(-ENOMEM, "cannot allocate memory for %u grants", capacity);
		grants->slots = slots;
		grants->capacity = capacity;
	}
	if (i == grants->n || grants->slots[i].region == 0) {
		int ret = random_fill(new.secret, sizeof(new.secret));

		if (ret)
			return ret;
		grants->slots[i] = new;
	}
	if (i == grants->n)
		grants->n++;
	wire.region = want->region;
	wire.rights = want->rights;
	wire.client_id = want->client_id;
	wire.incarnation = grants->incarnation;
	wire.slot = i;
	memcpy(wire.secret, grants->slots[i].secret, sizeof(wire.secret));
	wire.crc = crc32c(0, &wire, offsetof(struct shm_grant, crc));
	*grant_out = (struct region_grant){ .bytes = sizeof(wire) };
	memcpy(grant_out->data, &wire, sizeof(wire));
	return 0;
}

int grants_check(const struct grants *grants, uint64_t client_id, const struct region_grant *grant,
		 const struct grant_slot **slot_out)
{
	const struct grant_slot *slot;
	struct shm_grant wire;
	uint8_t differ = 0;

	if (grant->bytes != sizeof(wire))
		return error_set(-EPROTO, "grant of %u bytes: an shm grant has %zu", grant->bytes,
				 sizeof(wire));
	memcpy(&wire, grant->data, sizeof(wire));
	if (wire.magic != GRANT_MAGIC || wire.reserved ||
	    wire.crc != crc32c(0, &wire, offsetof(struct shm_grant, crc)))
		return error_set(-EPROTO, "grant: damaged, or of another transport than shm");
	if (wire.version != GRANT_VERSION)
		return error_set(-EPROTO, "grant of version %u: this node speaks %u", wire.version,
				 GRANT_VERSION);
	if (wire.incarnation != grants->incarnation)
		return error_set(-ESTALE, "grant of region %u: given before this node restarted",
				 wire.region);
	slot = wire.slot < grants->n ? &grants->slots[wire.slot] : NULL;
	/* In the same time wherever they differ. Without OpenSSL: a library for embed: alone has none. */
	for (size_t i = 0; slot && i < sizeof(wire.secret); i++)
		differ |= (uint8_t)(slot->secret[i] ^ wire.secret[i]);
	if (!slot || slot->region == 0 || differ)
		return error_set(-EACCES, "grant of region %u: it was revoked, or never given",
				 wire.region);
	if (slot->client_id != client_id || wire.client_id != client_id)
		return error_set(-EACCES,
				 "grant of region %u: given to client %llu, used by client %llu",
				 wire.region, (unsigned long long)slot->client_id,
				 (unsigned long long)client_id);
	*slot_out = slot;
	return 0;
}

void grants_remove(struct grants *grants, uint64_t client_id, const struct region_range *range)
{
	for (uint32_t i = 0; i < grants->n; i++) {
		struct grant_slot *slot = &grants->slots[i];

		if ((client_id == GRANTS_ANY || slot->client_id == client_id) &&
		    (range->region == 0 || slot->region == range->region) &&
		    (range->len == 0 || (slot->off == range->off && slot->len == range->len)))
			*slot = (struct grant_slot){ 0 };
	}
}
