"""A fault campaign: is anything lost, duplicated or wrong when processes, nodes, disks and databases fail?"""
