/*
 * order.c - a table of what is kept in order, and what of it a caller needs.
 */
#include "transport/ofi/order.h"

#define BIT(kind) ((uint8_t)(1u << (kind)))

/* The masks of earlier kinds that the endpoint keeps before each kind. */
static void kept(uint64_t order, bool messages_stay_behind, uint8_t kept_out[OFI_KINDS])
{
	const bool behind = messages_stay_behind || (order & FI_ORDER_WAW && order & FI_ORDER_RAW);
	const uint64_t rar = FI_ORDER_RAR | FI_ORDER_ATOMIC_RAR;
	const uint64_t raw = FI_ORDER_RAW | FI_ORDER_ATOMIC_RAW;
	const uint64_t war = FI_ORDER_WAR | FI_ORDER_ATOMIC_WAR;
	const uint64_t waw = FI_ORDER_WAW | FI_ORDER_ATOMIC_WAW;
	const uint8_t writes = BIT(OFI_PUT) | BIT(OFI_CHANGE);

	for (int kind = 0; kind < OFI_KINDS; kind++)
		kept_out[kind] = kind > OFI_WRITE && behind ? BIT(OFI_WRITE) : 0;
	if (order & (FI_ORDER_RAR | FI_ORDER_RMA_RAR))
		kept_out[OFI_READ] |= BIT(OFI_READ);
	if (order & (FI_ORDER_RAW | FI_ORDER_RMA_RAW))
		kept_out[OFI_READ] |= BIT(OFI_WRITE);
	if (order & (FI_ORDER_WAW | FI_ORDER_RMA_WAW))
		kept_out[OFI_WRITE] |= BIT(OFI_WRITE);
	if (order & (FI_ORDER_WAR | FI_ORDER_RMA_WAR))
		kept_out[OFI_WRITE] |= BIT(OFI_READ);
	if (order & rar)
		kept_out[OFI_FETCH] |= BIT(OFI_FETCH);
	if (order & raw)
		kept_out[OFI_FETCH] |= writes;
	if (order & waw)
		kept_out[OFI_PUT] |= writes;
	if (order & war)
		kept_out[OFI_PUT] |= BIT(OFI_FETCH);
	if (order & waw && order & raw) /* it reads and writes at one moment */
		kept_out[OFI_CHANGE] |= writes;
	if (order & war && order & rar)
		kept_out[OFI_CHANGE] |= BIT(OFI_FETCH);
}

struct ofi_order ofi_order_of(uint64_t msg_order, bool messages_stay_behind)
{
	const uint8_t all = BIT(OFI_KINDS) - 1;
	/* a write may pass reads and atomics, unless it has a fence; nothing else passes anything */
	const uint8_t passed = BIT(OFI_READ) | BIT(OFI_FETCH) | BIT(OFI_CHANGE);
	struct ofi_order order;
	uint8_t safe[OFI_KINDS];

	kept(msg_order, messages_stay_behind, safe);
	for (int kind = 0; kind < OFI_KINDS; kind++) {
		uint8_t needed = all & (uint8_t)~safe[kind];
		bool writes = kind == OFI_WRITE || kind == OFI_PUT;

		order.plain[kind] = writes ? needed & (uint8_t)~passed : needed;
		order.fenced[kind] = needed;
	}
	return order;
}
