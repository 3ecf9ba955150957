/*
 * The memory order of chains and of the ring, line by line beside the C, for machines that are weaker than x86.
 * Each line names what it models; a switch of `broken` leaves one order out, and then the search must fail.
 * Relacy has no load that reads a later store, so it could not tell a take (T1) by a relaxed CAS apart.
 */
#include <iostream>

#include <relacy/relacy.hpp>

enum broken {
	NOTHING,
	HEAD_RELAXED,    /* H1: the head word is set by a relaxed CAS */
	NO_HEAD_ACQUIRE, /* H4: the head word is loaded relaxed, and no fence follows */
	NO_PIN,          /* H2: the reader does not pin */
	NO_PIN_FENCE,    /* H2: no fence between pin and head word */
	NO_OWNER_FENCE,  /* H3: no fence between epoch and pins */
	LEAF_RELAXED,    /* P1: the leaf is published by a relaxed CAS */
	NO_CLAIM_FENCE,  /* C1: no fence between claim and rows */
	NO_ROW_FENCE,    /* V2: no fence between rows and the second look */
};

static broken rule;

typedef rl::atomic<unsigned> word;

static bool swap(word &at, unsigned from, unsigned to, bool relaxed)
{
	return at($).compare_exchange_strong(from, to,
					     relaxed ? rl::mo_relaxed
						     : rl::mo_acq_rel,
					     rl::mo_relaxed);
}

static void fence(bool is_there)
{
	if (is_there)
		rl::atomic_thread_fence(rl::mo_seq_cst, $);
}

static void acquire(bool is_there)
{
	if (is_there)
		rl::atomic_thread_fence(rl::mo_acquire, $);
}

/*
 * One key. The owner of two slots puts versions 1 and 2; version v lies in slot v % 2, so version 2 goes where
 * version 0 was, once no pin forbids it. The reader has pinned: what it reads must be whole.
 */
struct chain : rl::test_suite<chain, 2> {
	word head, epoch, pin, slot[2][2];

	void before()
	{
		head($).store(0, rl::mo_relaxed);
		epoch($).store(1, rl::mo_relaxed);
		pin($).store(0, rl::mo_relaxed);
		for (unsigned s = 0; s < 2; s++)
			for (unsigned i = 0; i < 2; i++)
				slot[s][i]($).store(s * 9, rl::mo_relaxed);
	}

	/* put_swap_in_place (ds/heap/put.c): chain_entry_write; rword64_cas */
	void put(unsigned version)
	{
		slot[version % 2][0]($).store(version, rl::mo_relaxed);
		slot[version % 2][1]($).store(version, rl::mo_relaxed);
		swap(head, version - 1, version, rule == HEAD_RELAXED);
	}

	/* space_collect (ds/heap/space.c): may the slot that the head named before be written again? */
	bool collect()
	{
		/* extent_sweep: transport_read of head words */
		unsigned named = head($).load(rl::mo_relaxed);
		acquire(true);
		/* space_tag: transport_load of the epoch */
		unsigned tag = epoch($).load(rl::mo_acquire);
		/* space_ripen: transport_load; transport_cas_word */
		unsigned now = epoch($).load(rl::mo_acquire), pinned;

		if (now <= tag)
			swap(epoch, now, now + 1, false);
		now++;
		/* H3: transport_order; space_least_pin: transport_fetch of the pins */
		fence(rule != NO_OWNER_FENCE);
		pinned = pin($).load(rl::mo_relaxed);
		acquire(true);
		return named == 1 && tag < (pinned && pinned < now ? pinned : now);
	}

	void read()
	{
		/* heap_access_announce (ds/heap/access.c): rword64_load_relaxed; H2: rword64_announce,
		   transport_order */
		unsigned now = epoch($).load(rl::mo_relaxed), found, a, b;

		if (rule == NO_PIN_FENCE)
			pin($).store(now, rl::mo_relaxed);
		else if (rule != NO_PIN)
			pin($).store(now, rl::mo_seq_cst);
		fence(rule != NO_PIN_FENCE);
		/* access_fetch: transport_copy_racy, transport_read_done. H4: then the entry */
		found = head($).load(rl::mo_relaxed);
		acquire(rule != NO_HEAD_ACQUIRE);
		a = slot[found % 2][0]($).load(rl::mo_relaxed);
		b = slot[found % 2][1]($).load(rl::mo_relaxed);
		acquire(true);
		RL_ASSERT(a == found && b == found);
		/* heap_access_withdraw: rword64_withdraw */
		pin($).store(0, rl::mo_release);
	}

	void thread(unsigned index)
	{
		if (index) {
			read();
			return;
		}
		put(1);
		if (collect())
			put(2);
	}
};

/*
 * One row under one leaf, whose word is its generation, 0 while it is claimed, and 10 more when it was taken. The
 * writer puts generation 2 over generation 1, which a reader samples or takes meanwhile.
 */
struct ring : rl::test_suite<ring, 2> {
	word leaf, row[2];

	void before()
	{
		leaf($).store(1, rl::mo_relaxed);
		for (unsigned i = 0; i < 2; i++)
			row[i]($).store(1, rl::mo_relaxed);
	}

	/* ring_claim (ds/ring/ring.c), then publish_ops (ds/sumtree/sumtree.c) */
	void write()
	{
		unsigned was = leaf($).load(rl::mo_relaxed);

		if (!swap(leaf, was, 0, false))
			return;
		/* C1: transport_claim_before_rows */
		fence(rule != NO_CLAIM_FENCE);
		row[0]($).store(2, rl::mo_relaxed);
		row[1]($).store(2, rl::mo_relaxed);
		swap(leaf, 0, 2, rule == LEAF_RELAXED); /* P1 */
	}

	void read()
	{
		/* load_child (ds/sumtree/kernel_plain.c): V1 */
		unsigned found = leaf($).load(rl::mo_acquire), a, b;
		bool same;

		a = row[0]($).load(rl::mo_relaxed);
		b = row[1]($).load(rl::mo_relaxed);
		if (rl::rand(2)) { /* sampler_consume_once (client/sampler/consume.c): T1 */
			same = found && swap(leaf, found, found + 10, false);
		} else { /* sampler_look_in_place (client/sampler/round.c): V2 */
			acquire(rule != NO_ROW_FENCE);
			same = found && leaf($).load(rl::mo_relaxed) == found;
		}
		if (same)
			RL_ASSERT(a == found && b == found);
	}

	void thread(unsigned index)
	{
		if (index)
			read();
		else
			write();
	}
};

static unsigned failed;

template <typename model> static void search(const char *name, broken switched)
{
	rl::test_params params;
	bool holds;

	rule = switched;
	params.search_type = rl::fair_full_search_scheduler_type;
	holds = rl::simulate<model>(params);
	if (holds == (switched == NOTHING)) {
		std::cout << "ok      " << name << std::endl;
		return;
	}
	failed++;
	std::cout << "FAILED  " << name << std::endl;
}

int main()
{
	search<chain>("chain", NOTHING);
	search<chain>("chain HEAD_RELAXED", HEAD_RELAXED);
	search<chain>("chain NO_HEAD_ACQUIRE", NO_HEAD_ACQUIRE);
	search<chain>("chain NO_PIN", NO_PIN);
	search<chain>("chain NO_PIN_FENCE", NO_PIN_FENCE);
	search<chain>("chain NO_OWNER_FENCE", NO_OWNER_FENCE);
	search<ring>("ring", NOTHING);
	search<ring>("ring LEAF_RELAXED", LEAF_RELAXED);
	search<ring>("ring NO_CLAIM_FENCE", NO_CLAIM_FENCE);
	search<ring>("ring NO_ROW_FENCE", NO_ROW_FENCE);
	std::cout << failed << " searches failed" << std::endl;
	return failed != 0;
}
