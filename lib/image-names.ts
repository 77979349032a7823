// The names of images, by the grammar of engines (distribution/reference). An engine refuses any other name, and with it the
// service that has it.

const part = '[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*'
const label = '[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?'
// A first part without a dot and a port is no host, but for `localhost`, which is a part, too.
const host = `${label}(?:(?:\\.${label})+(?::[0-9]+)?|:[0-9]+)`
const tag = '\\w[\\w.-]{0,127}'
const digest = '(?:sha256:[0-9a-f]{64}|sha384:[0-9a-f]{96}|sha512:[0-9a-f]{128})'

/** Of a name without a registry's host, as the source of a pattern. */
export const imagePath = `${part}(?:/${part})*`
const name = `(?:${host}/)?${imagePath}`

/** Without a tag. */
export const imageName = new RegExp(`^${name}$`)
export const imageTag = new RegExp(`^${tag}$`)
// An engine takes 64 digits alone for an image's id.
const imageReference = new RegExp(`^(?![0-9a-f]{64}$)(${name})(?::${tag})?(?:@${digest})?$`)

const longestName = 255

/** Whether a name is short enough. An engine counts the registry and the owner of an image of Docker Hub, too. */
export function isShortImageName(text: string): boolean {
  const [first = '', second] = text.split('/')
  const hasHost = second !== undefined && (/[.:]/.test(first) || first === 'localhost')
  const added = hasHost ? '' : second === undefined ? 'docker.io/library/' : 'docker.io/'
  return added.length + text.length <= longestName
}

/** Whether a text names an image, with or without a tag and a digest. */
export function isImageReference(text: string): boolean {
  const [, named] = imageReference.exec(text) ?? []
  return named !== undefined && isShortImageName(named)
}
