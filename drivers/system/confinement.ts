/**
 * A command that runs as root with these capabilities alone. Neither it nor its children can get others, whatever they
 * execute. Needs `setpriv` of util-linux.
 */
export const confined = (capabilities: string[], command: string[]): string[] => [
  'setpriv',
  '--no-new-privs',
  '--inh-caps=-all',
  ['--bounding-set=-all', ...capabilities.map((name) => `+${name}`)].join(','),
  '--',
  ...command,
]
