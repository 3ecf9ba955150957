/*
 * test_ofi_order.c - what must be waited for, by what an endpoint declares.
 */
#include "tests/support/test.h"

#include "transport/ofi/order.h"

#define BIT(kind) (1u << (kind))
#define ALL (BIT(OFI_KINDS) - 1)
#define WRITES (BIT(OFI_WRITE) | BIT(OFI_PUT))

/* As libfabric 1.17 declares it of tcp;ofi_rxm. */
#define RXM \
	(FI_ORDER_RMA_RAR | FI_ORDER_RMA_RAW | FI_ORDER_RMA_WAW | FI_ORDER_ATOMIC_RAR | \
	 FI_ORDER_ATOMIC_RAW | FI_ORDER_ATOMIC_WAW)

TEST(order__of_an_endpoint_without_any_waits_for_all)
{
	struct ofi_order order = ofi_order_of(0, false);

	for (int kind = 0; kind < OFI_KINDS; kind++) {
		bool writes = BIT(kind) & WRITES;

		assert_int_equal(order.plain[kind], writes ? WRITES : ALL);
		assert_int_equal(order.fenced[kind], ALL);
	}
}

TEST(order__of_rxm_lets_a_publish_go_as_one_chain)
{
	struct ofi_order order = ofi_order_of(RXM, true);

	assert_false(order.plain[OFI_CHANGE] & (WRITES | BIT(OFI_CHANGE)));
	assert_false(order.plain[OFI_PUT] & ALL);
	assert_false(order.fenced[OFI_PUT] & BIT(OFI_CHANGE));
	assert_false(order.plain[OFI_FETCH] & (ALL & ~BIT(OFI_READ)));
	assert_false(order.plain[OFI_READ] & (BIT(OFI_READ) | BIT(OFI_WRITE)));
}

/* rxm carries atomics out later than transfers that came behind them. */
TEST(order__of_rxm_keeps_transfers_behind_atomics)
{
	struct ofi_order order = ofi_order_of(RXM, true);

	assert_true(order.plain[OFI_READ] & BIT(OFI_CHANGE));
	assert_true(order.plain[OFI_READ] & BIT(OFI_PUT));
	assert_true(order.plain[OFI_WRITE] & BIT(OFI_PUT));
	assert_true(order.fenced[OFI_WRITE] & BIT(OFI_CHANGE));
	assert_true(order.plain[OFI_CHANGE] & BIT(OFI_READ));
	assert_true(order.plain[OFI_CHANGE] & BIT(OFI_FETCH));
}

TEST(order__without_messages_behind_writes_has_a_publish_wait)
{
	struct ofi_order order = ofi_order_of(RXM, false);

	assert_true(order.plain[OFI_CHANGE] & BIT(OFI_WRITE));
	assert_true(order.plain[OFI_PUT] & BIT(OFI_WRITE));
}

TEST(order__of_a_strict_endpoint_waits_for_nothing)
{
	struct ofi_order order =
		ofi_order_of(RXM | FI_ORDER_RAR | FI_ORDER_RAW | FI_ORDER_WAR | FI_ORDER_WAW, true);

	assert_int_equal(order.plain[OFI_CHANGE] & (WRITES | BIT(OFI_CHANGE) | BIT(OFI_FETCH)), 0);
	assert_int_equal(order.fenced[OFI_PUT] & (BIT(OFI_FETCH) | BIT(OFI_CHANGE)), 0);
	assert_int_equal(order.fenced[OFI_WRITE] & BIT(OFI_READ), 0);
}

int main(void)
{
	return test_run(NULL, NULL);
}
