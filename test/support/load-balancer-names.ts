import { basename } from 'node:path'

// What the tests of the HAProxy driver make outside their folder, by the folder's name: `lb-1234-Ab12Cd`.

export const foldersBegin = 'lb-'

/** `unique`: a number of the run. */
export const namespacesOf = (unique: string) => ({ member: `kt-lb-${unique}`, targets: `kt-lt-${unique}` })

/** The namespaces of a folder; none if it is not one of these tests. */
export function namespacesOfFolder(folder: string): string[] {
  const [, unique] = /^lb-(\d+)-/.exec(basename(folder)) ?? []
  return unique === undefined ? [] : Object.values(namespacesOf(unique))
}
