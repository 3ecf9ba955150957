#include "ds/part/superblock.h"

#include "transport/barrier.h"

#include "base/crc32c.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* Who changes the words of a region of that enum atomic_domain; NULL: unknown. */
static const char *domain_text(uint32_t domain)
{
	switch (domain) {
	case ATOMIC_DOMAIN_CPU:
		return "the host's CPUs";
	case ATOMIC_DOMAIN_NIC:
		return "the node's NIC";
	case ATOMIC_DOMAIN_AGENT:
		return "the node's agent";
	}
	return NULL;
}

uint32_t superblock_domain(const struct region *region)
{
	if (region->tr->caps & TRANSPORT_CPU_ATOMIC)
		return ATOMIC_DOMAIN_CPU;
	return region->tr->caps & TRANSPORT_AGENT_ATOMIC ? ATOMIC_DOMAIN_AGENT : ATOMIC_DOMAIN_NIC;
}

void superblock_seal(struct region_superblock *sb, const struct region *region)
{
	sb->magic = REGION_MAGIC;
	sb->format_major = REGION_FORMAT_MAJOR;
	sb->format_minor = REGION_FORMAT_MINOR;
	sb->size = region->size;
	sb->extent_size = REGION_EXTENT_BYTES;
	sb->region = region->id;
	sb->crc = crc32c(0, sb, offsetof(struct region_superblock, crc));
}

int superblock_state_check(uint64_t state)
{
	switch (state) {
	case REGION_LIVE:
		return 0;
	case REGION_ORPHANED:
		return error_set(-EHOSTDOWN, "region: orphaned, its memory node was replaced");
	case REGION_DROPPED:
		return error_set(-ESTALE, "region: its table was dropped");
	case REGION_FORMATTING:
		return error_set(-ESTALE, "region: its formatting was interrupted");
	default:
		return error_set(-EBADMSG, "region state %#" PRIx64 ": damaged", state);
	}
}

int superblock_check(const struct region_superblock *sb, uint32_t kind, uint32_t role,
		     uint64_t region_bytes)
{
	size_t len = strnlen(sb->name, sizeof(sb->name));
	bool printable = len < sizeof(sb->name);

	for (size_t i = 0; i < len; i++)
		printable &= sb->name[i] > ' ' && sb->name[i] <= '~';
	if (sb->magic != REGION_MAGIC)
		return error_set(-EPROTO, "superblock magic %016" PRIx64 ": not a relive region",
				 sb->magic);
	if (sb->format_major != REGION_FORMAT_MAJOR)
		return error_set(-EPROTO, "superblock format %u.%u: this library reads %u",
				 sb->format_major, sb->format_minor, REGION_FORMAT_MAJOR);
	if (sb->crc != crc32c(0, sb, offsetof(struct region_superblock, crc)))
		return error_set(-EBADMSG, "superblock: wrong crc, its bytes were changed");
	if (sb->incompat & ~REGION_INCOMPAT_KNOWN)
		return error_set(-EPROTO, "superblock incompat features %#llx: unknown",
				 sb->incompat & ~REGION_INCOMPAT_KNOWN);
	if (sb->kind != kind || sb->role != role)
		return error_set(-EPROTO, "superblock kind %u role %u: expected kind %u role %u",
				 sb->kind, sb->role, kind, role);
	if (sb->size > region_bytes)
		return error_set(-EPROTO,
				 "superblock size %" PRIu64 ": but the region has %" PRIu64
				 " bytes",
				 sb->size, region_bytes);
	if (!domain_text(sb->atomic_domain))
		return error_set(-EPROTO, "superblock atomic domain %u: unknown",
				 sb->atomic_domain);
	if (!printable)
		return error_set(-EPROTO, "superblock: the name of its object is not printable");
	return role == REGION_SLOTS ? superblock_state_check(sb->state.word.raw) : 0;
}

/* -------- words of rows in a file -------- */

bool superblock_is_of_rows(const struct region_superblock *sb)
{
	return sb->magic == REGION_MAGIC && sb->format_major == REGION_FORMAT_MAJOR &&
	       sb->role == REGION_ROWS;
}

void superblock_begin_alone(struct region_superblock *sb, uint64_t incarnation)
{
	rword64_announce(&sb->found.word, rword64_load_relaxed(&sb->mark.word));
	rword64_announce(&sb->opener.word, incarnation);
}

void superblock_set_mark(struct region_superblock *sb)
{
	rword64_announce(&sb->mark.word, REGION_MARKED);
}

void superblock_end_alone(struct region_superblock *sb)
{
	uint64_t opener = rword64_load_relaxed(&sb->opener.word);
	bool is_sound = rword64_load_relaxed(&sb->recovered.word) == opener;

	rword64_announce(&sb->mark.word, is_sound ? 0 : rword64_load_relaxed(&sb->found.word));
}

/* -------- atomic domain -------- */

int superblock_domain_check(const struct region_superblock *sb, const struct region *region)
{
	static const char *const places[] = {
		[ATOMIC_DOMAIN_CPU] = "on the node's own host",
		[ATOMIC_DOMAIN_NIC] = "at the node's RDMA address",
		[ATOMIC_DOMAIN_AGENT] = "at the node's ofi address",
	};
	uint32_t mine = superblock_domain(region);

	if (sb->atomic_domain == mine)
		return 0;
	return error_set(-EPROTO,
			 "superblock: words of the region are changed by %s for life, and would be "
			 "by %s over this transport (%s): attach it %s",
			 domain_text(sb->atomic_domain), domain_text(mine), region->tr->ops->name,
			 places[sb->atomic_domain]);
}
