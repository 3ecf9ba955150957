/* message_body.h - checks what the messages of several transports have in common. */
#ifndef RLV_TRANSPORT_MESSAGE_BODY_H
#define RLV_TRANSPORT_MESSAGE_BODY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* True if a text ends within its room. */
bool message_text_ends(const char *text, size_t room);

/* True if an ATTACH's grant has a length that fits in its room, and zeros behind it. */
bool message_grant_is_sound(const uint8_t *grant, uint32_t bytes, uint32_t room);

/* True if an ATTACHED without a failure names a region, a range of whole words, and rights that there are. */
bool message_range_is_sound(uint32_t region, uint32_t rights, uint64_t address, uint64_t size);

#endif
