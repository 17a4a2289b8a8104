// SPDX-License-Identifier: Apache-2.0
//
// Writes frames of a travelling wave to an HDF5 file in the background, in C++: handles that close themselves, and exceptions.
//
//     g++ write_frames.cpp $(pkg-config --cflags --libs sluice) -o write_frames
//     write_frames FILE [CODEC]
#include <cmath>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>

#include <sluice/writer.h>

namespace {

constexpr int rows = 480, columns = 640, frames = 100;

void check(const char *what, int rc)
{
	if (rc < 0)
		throw std::runtime_error(std::string(what) + ": " + sluice_last_message());
}

// An exception leaves the file as of the last flush.
using context = std::unique_ptr<sluice_context, decltype(&sluice_context_close)>;
using writer = std::unique_ptr<sluice_writer, decltype(&sluice_writer_discard)>;

context new_context()
{
	sluice_context *made;

	check("the context", sluice_context_new(nullptr, &made));
	return context(made, sluice_context_close);
}

writer open_writer(const context &ctx, const char *path)
{
	sluice_writer_options o = SLUICE_WRITER_OPTIONS_INIT;
	sluice_writer *made;

	o.flags = SLUICE_WRITER_REPLACE;
	check("opening", sluice_writer_open(ctx.get(), path, &o, &made));
	return writer(made, sluice_writer_discard);
}

sluice_series *add_series(const writer &w, const char *codec)
{
	const char *const scalars[] = {"time", "step"};
	sluice_attribute title = {};
	sluice_series_options o = SLUICE_SERIES_OPTIONS_INIT;
	sluice_series *series;

	title.name = "title";
	title.text = "a travelling wave";
	o.type = SLUICE_FLOAT32;
	o.rank = 2;
	o.shape[0] = rows;
	o.shape[1] = columns;
	o.codec = codec;
	o.scalars = scalars;
	o.scalar_count = 2;
	o.attributes = &title;
	o.attribute_count = 1;
	check("adding the dataset", sluice_series_add(w.get(), "wave/height", &o, &series));
	return series;
}

void write(const char *path, const char *codec)
{
	context ctx = new_context();
	writer w = open_writer(ctx, path);
	sluice_series *height = add_series(w, codec);

	for (int step = 0; step < frames; step++) {
		const double scalars[] = {0.1 * step, double(step)};
		void *memory;

		check("a frame", sluice_series_acquire(height, -1, &memory));
		float *frame = static_cast<float *>(memory);
		for (int row = 0; row < rows; row++)
			for (int column = 0; column < columns; column++)
				frame[row * columns + column] = std::sin(0.05f * float(column) - float(scalars[0])) *
				                                std::cos(0.03f * float(row));
		check("a frame", sluice_series_submit(height, frame, scalars));
	}
	check("closing", sluice_writer_close(w.release(), -1));
	std::printf("%d frames\n", frames);
}

} // namespace

int main(int argc, char **argv)
{
	if (argc < 2 || argc > 3) {
		std::fprintf(stderr, "usage: write_frames FILE [CODEC]\n");
		return 2;
	}
	try {
		write(argv[1], argc > 2 ? argv[2] : nullptr);
	} catch (const std::exception &error) {
		std::fprintf(stderr, "write_frames: %s\n", error.what());
		return 1;
	}
	return 0;
}
