#include "ds/heap/stripe/settle.h"

#include "base/mem/alloc.h"

#include <errno.h>
#include <string.h>

int stripe_look(const struct stripe_io *io, uint32_t part, const struct chain_key *key,
		struct stripe_look *out)
{
	struct heap_value got = { 0 };
	int ret = io->look(io->ctx, part, key, &got);

	if (ret && ret != -ENOENT)
		return ret;
	*out = (struct stripe_look){ .version = got.version,
				     .exists = ret == 0,
				     .striped = ret == 0 && got.striped,
				     .manifest = got.ptr,
				     .len = got.len };
	return 0;
}

int stripe_delete(const struct stripe_io *io, uint32_t part, const struct stripe_name *name,
		  uint64_t version)
{
	const struct heap_put put = { .deletes = true, .expected = version };
	struct stripe_look look;
	uint64_t done;
	int ret = io->put(io->ctx, part, &name->key, &put, &done);

	/* Also of a key that is not there and has no bucket. */
	if (ret == -ENOSPC && stripe_look(io, part, &name->key, &look) == 0 &&
	    (!look.exists || look.version != version))
		return 0;
	return ret == -ESTALE || ret == -ENOENT || ret == -EBADMSG ? 0 : ret;
}

/* Completes a put of the key that is decided: a delete that expects a version which no key has looks for it. */
static int stripe_help(const struct stripe_io *io, uint32_t part, const struct chain_key *key)
{
	const struct heap_put put = { .deletes = true, .expected = HEAP_ANY_VERSION - 1 };
	uint64_t done;
	int ret = io->helps ? io->put(io->ctx, part, key, &put, &done) : 0;

	return ret == -ESTALE || ret == -ENOENT || ret == -EBADMSG ? 0 : ret;
}

/* What a settle works on. */
struct settling {
	const struct stripe_io *io;
	struct stripe_name name; /* of the intent */
	uint32_t at;             /* its part */
	uint64_t version;
	struct stripes_intent intent;
};

/* Reads the intent. 1 = there is none, or a damaged one: then nobody knows its stripes. */
static int intent_get(struct settling *s, uint32_t owner)
{
	struct heap_value got = { 0 };
	int ret = s->io->get(s->io->ctx, s->at, &s->name.key, &got);

	if (ret)
		return ret == -ENOENT || ret == -EBADMSG ? 1 : ret;
	s->version = got.version;
	ret = stripes_intent_read(s->io->desc, owner, got.ptr, got.len, &s->intent);
	if (ret != -EBADMSG)
		return ret;
	ret = stripe_delete(s->io, s->at, &s->name, s->version);
	return ret ? ret : 1;
}

/* True if the stripes are those of the manifest; the versions of the intent's own are not known. */
static bool settle_is_named(const struct stripes *fresh, const struct stripes *home)
{
	bool same = home->n == fresh->n && home->owner == fresh->owner && fresh->n > 0;

	for (uint32_t i = 0; same && i < fresh->n; i++)
		same = home->refs[i].number == fresh->refs[i].number;
	return same;
}

/* Which of the intent's stripes the key names now. Of a damaged key nobody knows: they all stay. */
static int settle_look(struct settling *s, bool *fresh_out, bool *old_out)
{
	struct stripe_look look;
	struct stripes home = { 0 };
	int ret = stripe_help(s->io, s->intent.part, &s->intent.key);

	if (ret == 0)
		ret = stripe_look(s->io, s->intent.part, &s->intent.key, &look);
	*fresh_out = *old_out = ret == -EBADMSG;
	if (ret)
		return ret == -EBADMSG ? 0 : ret;
	*old_out = look.exists && look.version == s->intent.replaces;
	if (!look.striped)
		return 0;
	ret = stripes_read(s->io->desc, look.manifest, look.len, &home);
	*fresh_out = ret == -EBADMSG || settle_is_named(&s->intent.fresh, &home);
	*old_out |= ret == -EBADMSG;
	stripes_free(&home);
	return ret == -EBADMSG ? 0 : ret;
}

/* Sets the versions of the new stripes that are there; 0 = it is not. *same_out: the intent is there still. */
static int settle_versions(struct settling *s, bool *same_out)
{
	struct stripes *fresh = &s->intent.fresh;
	struct stripe_look look;
	struct stripe_name name;
	int ret = 0;

	for (uint32_t i = 0; ret == 0 && i < fresh->n; i++) {
		uint32_t part = stripe_part(s->io->desc, s->intent.part, i);

		stripe_name_data(s->io->desc, fresh->owner, fresh->refs[i].number, &name);
		ret = stripe_help(s->io, part, &name.key);
		if (ret == 0 ||
		    ret == -ENOSPC) /* perhaps no bucket is free for it, and it is not there */
			ret = stripe_look(s->io, part, &name.key, &look);
		fresh->refs[i].version = ret == 0 && look.exists ? look.version : 0;
		ret = ret == -EBADMSG ? 0 : ret; /* a damaged one stays */
	}
	if (ret == 0)
		ret = stripe_look(s->io, s->at, &s->name.key, &look);
	*same_out = ret == 0 && look.exists && look.version == s->version;
	return ret;
}

static int settle_delete(struct settling *s, const struct stripes *stripes)
{
	struct stripe_name name;
	int ret = 0;

	for (uint32_t i = 0; ret == 0 && i < stripes->n; i++) {
		if (!stripes->refs[i].version)
			continue;
		stripe_name_data(s->io->desc, stripes->owner, stripes->refs[i].number, &name);
		ret = stripe_delete(s->io, stripe_part(s->io->desc, s->intent.part, i), &name,
				    stripes->refs[i].version);
	}
	return ret;
}

static int settle_intent(struct settling *s)
{
	bool named, keeps_old, same = true;
	int ret = settle_look(s, &named, &keeps_old);

	if (ret == 0 && !named && s->intent.fresh.n) {
		ret = settle_versions(s, &same);
		if (ret || !same) /* others have completed it */
			return ret;
		ret = settle_delete(s, &s->intent.fresh);
	}
	if (ret == 0 && !keeps_old)
		ret = settle_delete(s, &s->intent.old);
	return ret ? ret : stripe_delete(s->io, s->at, &s->name, s->version);
}

int stripe_settle(const struct stripe_io *io, uint32_t owner,
		  int (*see_free)(void *ctx, uint32_t owner))
{
	struct settling s = { .io = io, .at = stripe_intent_part(io->desc, owner) };
	int ret;

	stripe_name_intent(io->desc, owner, &s.name);
	ret = stripe_help(io, s.at, &s.name.key);
	if (ret == 0 || ret == -ENOSPC)
		ret = intent_get(&s, owner);
	if (ret)
		return ret;
	if (io->most && (uint64_t)s.intent.fresh.n + s.intent.old.n > io->most)
		ret = error_set(-EBUSY, "an intent of %u and %u stripes", s.intent.fresh.n,
				s.intent.old.n);
	if (ret == 0 && see_free)
		ret = see_free(io->ctx, owner);
	if (ret == 0)
		ret = settle_intent(&s);
	stripes_intent_free(&s.intent);
	return ret;
}
