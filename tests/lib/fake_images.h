#pragma once

/*
 * fake_images - a catalogue with one image, "minimal", in place of image/
 *
 * Purpose: defines the functions of image.h that the domain layer and the operations call. Link it
 *          instead of image/.
 * Owns:    nothing; nobody reads the files that the image names.
 * Thread:  loop.
 */

#include "image/image.h"

struct images *fake_images_new(void);
/* Asserts that nobody holds the image any more. */
void fake_images_free(struct images *images);
