// What all generated Dockerfiles share.

/** What is known of the files. */
export interface Found {
  /** To a depth of two folders. */
  paths: string[]
  /** Of the manifests that are there, by their names. */
  texts: Record<string, string>
}

/** The operator's images: node, python, go, run, composer, php, static. */
export type BaseImages = Record<string, string>

export interface Generated {
  /** In words: `Node`. */
  kind: string
  reasons: string[]
  text: string
  /** The base images that it names. */
  images: string[]
}

/** Nothing could be generated, for this reason. */
export interface Nothing {
  nothing: string
}

export const has = ({ paths }: Found, path: string): boolean => paths.includes(path)
/** The first of these paths that is there. */
export const firstOf = (found: Found, paths: string[]): string | undefined =>
  paths.find((path) => has(found, path))

/** A command with shell syntax, as the process of the image. */
export const command = (shell: string): string => `CMD ${JSON.stringify(['/bin/sh', '-c', shell])}`

/** One command without anything that `exec` cannot precede. */
export const isSimple = (shell: string): boolean => /^[\w./:@=,{}$" -]+$/.test(shell) && !/^\w+=/.test(shell)
export const executed = (shell: string): string => command(isSimple(shell) ? `exec ${shell}` : shell)

/** What `Procfile` says of the process that serves. */
export function procfile({ texts }: Found): string | undefined {
  return /^web:[ \t]*(\S.*)$/m.exec(texts['Procfile'] ?? '')?.[1]?.trim()
}

export const lines = (...parts: (string | false | undefined)[]): string =>
  `${parts.filter((part) => part !== false && part !== undefined).join('\n')}\n`
