# SPDX-License-Identifier: GPL-2.0-or-later
"""How the tests of snapshots attach their disk, whose id is d."""

# How the disk is attached: options, the guest's name for it, kernel and modules.
SD = ("full", ("virtio_pci", "ata_piix", "ahci", "nvme", "virtio_scsi", "sym53c8xx", "sd_mod", "ext4"))
DISKS = {
    "virtio": (["-device", "virtio-blk-pci,drive=d"], "vda", ("cloud", ())),
    "iothread": (["-object", "iothread,id=io", "-device", "virtio-blk-pci,drive=d,iothread=io"], "vda", ("cloud", ())),
    "packed": (["-device", "virtio-blk-pci,drive=d,packed=on"], "vda", ("cloud", ())),
    "ide": (["-device", "ide-hd,drive=d"], "sda", SD),
    "ahci": (["-device", "ahci,id=a", "-device", "ide-hd,drive=d,bus=a.0"], "sda", SD),
    "nvme": (["-device", "nvme,drive=d,serial=s"], "nvme0n1", SD),
    "scsi": (["-device", "virtio-scsi-pci", "-device", "scsi-hd,drive=d"], "sda", SD),
    "lsi": (["-device", "lsi", "-device", "scsi-hd,drive=d"], "sda", SD),
}
