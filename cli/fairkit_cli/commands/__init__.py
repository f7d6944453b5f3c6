"""The commands that stand alone, one file each; families of commands have folders of their own beside this one."""
