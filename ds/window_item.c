#include "ds/window.h"

#define ROW_STOPS (ROW_FIRST | ROW_FILLER) /* the rows before it ended without a word */

bool window_is_item(const struct view_desc *view, const struct window_flags *rows, bool has_next)
{
	uint32_t anchor = view->window - 1 - view->future;
	uint16_t flags = rows->flags[anchor];

	if (flags & (ROW_FINAL | ROW_FILLER) || rows->flags[view->window - 1] & ROW_REPEATED)
		return false;
	if (view->period > 1 && rows->steps[anchor] % view->period) /* a division a step */
		return false;
	if (has_next && !(flags & ROW_TERMINATED)) {
		uint16_t next = rows->flags[anchor + 1];

		if (next & ROW_FINAL)
			return true;
		return !(flags & ROW_TRUNCATED) && !(next & ROW_STOPS);
	}
	return true;
}
