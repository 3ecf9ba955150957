/*
 * Frames of a batch as adaptors hand them out: moved by a few pixels each, which is how DrQ augments
 * images, and as floats. One pass over the frames instead of one for each step.
 */
#include "python/src/core.h"

#include <string.h>
#ifdef __SSE2__
#include <xmmintrin.h>
#include <emmintrin.h>
#endif

#define MOST_WIDTH 4096

struct frames {
	Py_ssize_t n, planes; /* planes: of one frame */
	Py_ssize_t height, width;
	int divisor;
};

/* row[j] = in[j + by], where the nearest pixel stands for those beyond the edges. */
static void move_row(uint8_t *row, const uint8_t *in, Py_ssize_t width, Py_ssize_t by)
{
	Py_ssize_t gap = by < 0 ? -by : by;

	gap = gap < width ? gap : width;
	memset(by < 0 ? row : row + width - gap, by < 0 ? in[0] : in[width - 1], (size_t)gap);
	memcpy(by < 0 ? row + gap : row, by < 0 ? in : in + gap, (size_t)(width - gap));
}

/*
 * Past the caches: a batch as floats is larger than they are, and to read its lines before they are
 * written would double the traffic. frames_move orders the stores.
 */
static void row_to_floats(float *out, const uint8_t *row, Py_ssize_t n, int divisor)
{
	Py_ssize_t j = 0;

#ifdef __SSE2__
	const __m128 by = _mm_set1_ps((float)divisor);

	for (; (uintptr_t)out % 16 == 0 && j + 4 <= n; j += 4) {
		const __m128i zero = _mm_setzero_si128();
		__m128i four;
		int32_t bytes;

		memcpy(&bytes, row + j, sizeof(bytes));
		four = _mm_unpacklo_epi8(_mm_cvtsi32_si128(bytes), zero);
		four = _mm_unpacklo_epi16(four, zero);
		_mm_stream_ps(out + j, _mm_div_ps(_mm_cvtepi32_ps(four), by));
	}
#endif
	for (; j < n; j++)
		out[j] = (float)row[j] / (float)divisor;
}

static void move_plane(const struct frames *f, const uint8_t *in, uint8_t *bytes, float *floats,
		       const int32_t by[2])
{
	uint8_t scratch[MOST_WIDTH];
	uint8_t *row = bytes ? bytes : scratch;

	for (Py_ssize_t i = 0; i < f->height; i++) {
		Py_ssize_t from = i + by[0] < 0 ? 0 : i + by[0];

		from = from < f->height ? from : f->height - 1;
		move_row(row, in + from * f->width, f->width, by[1]);
		if (floats)
			row_to_floats(floats, row, f->width, f->divisor);
		row += bytes ? f->width : 0;
		floats += floats ? f->width : 0;
	}
}

static void move_frames(const struct frames *f, const uint8_t *in, void *out, bool to_floats,
			const int32_t *by)
{
	static const int32_t none[2] = { 0, 0 };
	Py_ssize_t plane = f->height * f->width;

	for (Py_ssize_t i = 0; i < f->n * f->planes; i++)
		move_plane(f, in + i * plane, to_floats ? NULL : (uint8_t *)out + i * plane,
			   to_floats ? (float *)out + i * plane : NULL,
			   by ? by + i / f->planes * 2 : none);
}

/* The views of frames_move fit each other: in is (n, ..., height, width), shifts (n, 2) of int32. */
static int check_views(const Py_buffer *in, const Py_buffer *out, const Py_buffer *by, int divisor)
{
	Py_ssize_t elements = out->itemsize ? out->len / out->itemsize : 0;

	if (in->itemsize == 1 && in->ndim >= 3 && in->len > 0 && in->len == elements &&
	    (out->itemsize == 1 || out->itemsize == 4) && divisor > 0 &&
	    in->shape[in->ndim - 1] <= MOST_WIDTH &&
	    (!by->obj || (by->itemsize == 4 && by->len == in->shape[0] * 8)))
		return 0;
	return error_invalid("move_frames: want frames (n, ..., height, width) of uint8, as many "
			     "elements of uint8 or float32, and (n, 2) shifts of int32 or None");
}

PyObject *frames_move(PyObject *Py_UNUSED(module), PyObject *args)
{
	Py_buffer in = { 0 }, out = { 0 }, by = { 0 };
	PyObject *frames, *target, *shifts;
	PyObject *result = NULL;
	struct frames f;

	if (!PyArg_ParseTuple(args, "OOOi", &frames, &target, &shifts, &f.divisor))
		return NULL;
	if (PyObject_GetBuffer(frames, &in, PyBUF_ND) ||
	    PyObject_GetBuffer(target, &out, PyBUF_ND | PyBUF_WRITABLE) ||
	    (shifts != Py_None && PyObject_GetBuffer(shifts, &by, PyBUF_ND)) ||
	    check_views(&in, &out, &by, f.divisor))
		goto release;
	f.n = in.shape[0];
	f.height = in.shape[in.ndim - 2];
	f.width = in.shape[in.ndim - 1];
	f.planes = in.len / (f.n * f.height * f.width);
	Py_BEGIN_ALLOW_THREADS;
	move_frames(&f, in.buf, out.buf, out.itemsize == 4, by.buf);
#ifdef __SSE2__
	_mm_sfence();
#endif
	Py_END_ALLOW_THREADS;
	result = Py_NewRef(Py_None);
release:
	PyBuffer_Release(&in);
	PyBuffer_Release(&out);
	PyBuffer_Release(&by);
	return result;
}
