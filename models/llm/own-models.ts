/** The provider in records and prices of the models that the platform runs itself. */
export const ownProvider = 'keelson'
