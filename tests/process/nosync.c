/* SPDX-License-Identifier: Apache-2.0
 *
 * nosync.c: a machine that forgets to wait for its disk (LD_PRELOAD): the control of powercut.sh, which must see
 * losses.
 */
__attribute__((visibility("default"))) int fsync(int fd);
int fsync(int fd)
{
    (void)fd;
    return 0;
}
