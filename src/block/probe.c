// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Image formats by the bytes their headers begin with. Used when no format= was
 * given, and to refuse writes that would turn a guessed raw image into another
 * format (its next opening would then follow names a guest chose).
 */
#include <string.h>

#include "base/util.h"
#include "block/driver.h"

static const struct {
	const char *format;
	unsigned offset, len;
	const char *bytes;
} magic_table[] = {
    {"qcow2", 0, 4, "QFI\xfb"}, /* also qcow version 1 */
    {"qed", 0, 4, "QED\0"},
    {"vmdk", 0, 4, "KDMV"},
    {"vmdk", 0, 4, "COWD"},
    {"vmdk", 0, 21, "# Disk DescriptorFile"},
    {"vdi", 64, 4, "\x7f\x10\xda\xbe"},
    {"vhdx", 0, 8, "vhdxfile"},
    {"vpc", 0, 8, "conectix"},
    {"luks", 0, 6, "LUKS\xba\xbe"},
    {"parallels", 0, 16, "WithoutFreeSpace"},
    {"parallels", 0, 16, "WithouFreSpacExt"},
    {"bochs", 0, 23, "Bochs Virtual HD Image"}, /* with its NUL */
    {"cloop", 0, 27, "#!/bin/sh\n#V2.0 Format\nmodp"},
};

const char *block_probe(const uint8_t *buf, size_t len)
{
	for (size_t i = 0; i < ARRAY_SIZE(magic_table); i++)
		if (magic_table[i].offset + magic_table[i].len <= len &&
		    memcmp(buf + magic_table[i].offset, magic_table[i].bytes, magic_table[i].len) == 0)
			return magic_table[i].format;
	return "raw";
}

bool block_format_known(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(magic_table); i++)
		if (strcmp(name, magic_table[i].format) == 0)
			return true;
	return strcmp(name, "qcow") == 0 || strcmp(name, "dmg") == 0;
}
