/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdbool.h>

#include "colours.h"

/* Lightness from 0 to 1, and the two axes of colour: green to red, blue to yellow. */
struct oklab {
	double l, a, b;
};

/* Where the way through the colours leads, evenly far apart. Lightness: from the first to the last. */
static const struct oklab way[] = {
	{0.16, 0.005, -0.060}, {0, -0.020, -0.110}, {0, -0.075, -0.075},   {0, -0.095, 0.000},
	{0, -0.055, 0.085},    {0, 0.012, 0.130},   {0.985, 0.000, 0.022},
};
enum { STATIONS = sizeof way / sizeof *way };

/*
 * The matrices and the cubes are those of the colour space Oklab,
 * https://bottosson.github.io/posts/oklab/ (2020); the curve is that of sRGB, IEC 61966-2-1.
 */
static void to_linear(struct oklab c, double out[3])
{
	double l = pow(c.l + 0.3963377774 * c.a + 0.2158037573 * c.b, 3);
	double m = pow(c.l - 0.1055613458 * c.a - 0.0638541728 * c.b, 3);
	double s = pow(c.l - 0.0894841775 * c.a - 1.2914855480 * c.b, 3);

	out[0] = 4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s;
	out[1] = -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s;
	out[2] = -0.0041960863 * l - 0.7034186147 * m + 1.7076147010 * s;
}

static uint8_t to_srgb(double x)
{
	double y = x <= 0.0031308 ? 12.92 * x : 1.055 * pow(x, 1 / 2.4) - 0.055;

	return (uint8_t)lround(255 * fmin(fmax(y, 0), 1));
}

static bool can_be_shown(const double c[3])
{
	const double slack = 1e-4;

	for (int i = 0; i < 3; i++)
		if (c[i] < -slack || c[i] > 1 + slack)
			return false;
	return true;
}

/* A colour that no screen can show is made paler, not lighter or darker. */
static struct colour nearest(struct oklab c)
{
	double linear[3];

	to_linear(c, linear);
	for (int i = 0; i < 100 && !can_be_shown(linear); i++) {
		c.a *= 0.97;
		c.b *= 0.97;
		to_linear(c, linear);
	}
	return (struct colour){to_srgb(linear[0]), to_srgb(linear[1]), to_srgb(linear[2])};
}

/* A smooth curve through the four (Catmull and Rom), between the middle ones. */
static double curve(double p0, double p1, double p2, double p3, double t)
{
	return p1 + 0.5 * t *
	                    (p2 - p0 +
	                     t * (2 * p0 - 5 * p1 + 4 * p2 - p3 + t * (3 * (p1 - p2) + p3 - p0)));
}

void colours_fill(struct colour table[COLOURS])
{
	for (int i = 0; i < COLOURS; i++) {
		double position = (double)i / (COLOURS - 1) * (STATIONS - 1);
		int at = position < STATIONS - 1 ? (int)position : STATIONS - 2;
		const struct oklab *p1 = &way[at], *p2 = p1 + 1;
		const struct oklab *p0 = at > 0 ? p1 - 1 : p1;
		const struct oklab *p3 = at + 2 < STATIONS ? p2 + 1 : p2;
		double t = position - at;
		double share = (double)i / (COLOURS - 1);

		table[i] = nearest((struct oklab){
			.l = way[0].l + share * (way[STATIONS - 1].l - way[0].l),
			.a = curve(p0->a, p1->a, p2->a, p3->a, t),
			.b = curve(p0->b, p1->b, p2->b, p3->b, t),
		});
	}
}

enum { STEPS = sizeof((struct scale){0}.colours) };

void scale_fill(struct scale *scale, float low, float high, float gamma)
{
	scale->low = low;
	scale->high = high;
	for (int i = 0; i < STEPS; i++)
		scale->colours[i] =
			(uint8_t)lround((COLOURS - 1) * pow((double)i / (STEPS - 1), gamma));
}

void colours_map(const struct scale *scale, const float *values, size_t count, uint8_t *out)
{
	float low = scale->low, range = scale->high - low,
	      factor = range > 0 ? (STEPS - 1) / range : 0;

	for (size_t i = 0; i < count; i++) {
		float x = (values[i] - low) * factor + 0.5F;

		/* So written that NaN becomes 0. */
		x = x > 0 ? x : 0;
		out[i] = scale->colours[(int)(x < STEPS - 1 ? x : STEPS - 1)];
	}
}
