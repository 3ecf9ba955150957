#include "transport/message_body.h"

#include <string.h>

#include "base/bits.h"

#include "transport/transport.h"

bool message_text_ends(const char *text, size_t room)
{
	return memchr(text, 0, room) != NULL;
}

bool message_grant_is_sound(const uint8_t *grant, uint32_t bytes, uint32_t room)
{
	return bytes > 0 && bytes <= room && bits_all_zero(grant + bytes, room - bytes);
}

bool message_range_is_sound(uint32_t region, uint32_t rights, uint64_t address, uint64_t size)
{
	return region && size && !((size | address) & 7) && address <= UINT64_MAX - size &&
	       !(rights & ~(uint32_t)RIGHT_ALL);
}
