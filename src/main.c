/* SPDX-License-Identifier: GPL-2.0-or-later */
#include <stdio.h>
int main(void)
{
	printf("kelvin " KELVIN_VERSION "\n");
	return 0;
}
